#include "plugins/simnpu/runtime/guard.h"

#include <algorithm>
#include <chrono>

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include "plugins/simnpu/memory/arena.h"
#include "plugins/simnpu/memory/device_allocator.h"
#include "plugins/simnpu/memory/host_allocator.h"
#include "plugins/simnpu/operators/view.h"
#include "plugins/simnpu/rules/rules.h"
#include "plugins/simnpu/runtime/generator.h"
#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {
namespace {

Runtime& runtime() { return Runtime::get(); }

struct Event {
  RecordingPtr latest;
};
const RecordingPtr& latest(void* event) { return static_cast<Event*>(event)->latest; }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice; }
  c10::DeviceIndex deviceCount() const noexcept override { return runtime().device_count(); }
  c10::Device getDevice() const override { return {kDevice, runtime().current_device()}; }
  void setDevice(c10::Device device) const override { runtime().set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { runtime().set_device(device.index()); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }

  c10::Stream getStream(c10::Device device) const override { return runtime().current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return runtime().pool_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return runtime().pool_stream(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return runtime().exchange_stream(stream); }
  // What tests hold a stream by (runtime/gate.h).
  void* getStreamNativeHandle(c10::Stream stream) const override {
    return static_cast<Gate*>(&runtime().worker(stream));
  }
  bool queryStream(const c10::Stream& stream) const override { return runtime().query(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { runtime().synchronize(stream); }
  void synchronizeDevice(c10::DeviceIndex index) const override { runtime().synchronize_device(index); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->latest = runtime().record(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) runtime().wait(stream, latest(event));
  }
  bool queryEvent(void* event) const override { return !event || runtime().query(latest(event)); }
  void synchronizeEvent(void* event) const override {
    if (event) runtime().synchronize(latest(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    refuse_event_timing();
    return std::chrono::duration<double, std::milli>(latest(to)->time() - latest(from)->time()).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    DeviceAllocator::get().recordStream(data, stream);
  }
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return runtime().device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return runtime().device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { runtime().set_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return runtime().current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex previous = runtime().current_device();
    runtime().set_device(index);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? runtime().current_device() : exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    for (c10::DeviceIndex i = 0; i < runtime().device_count(); ++i) {
      if (Arena::get().device(i).contains(reinterpret_cast<uintptr_t>(data))) return {kDevice, i};
    }
    TORCH_CHECK(false, "npu: an address that is not in device memory");
  }
  bool isPinnedPtr(const void* data) const override { return HostAllocator::get().is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &HostAllocator::get(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return at::make_generator<Generator>(index); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

}  // namespace

void register_device() {
  c10::register_privateuse1_backend("npu");
  static const c10::impl::DeviceGuardImplRegistrar guard(kDevice, new Guard);
  c10::SetAllocator(kDevice, &DeviceAllocator::get());
  at::setHostAllocator(kDevice, &HostAllocator::get());
  static auto* const hooks = new Hooks;  // for the life of the process, like the guard
  at::RegisterPrivateUse1HooksInterface(hooks);
}

}  // namespace pacer::simnpu
