#include "tests/simnpu/support.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "pacer/base/error.h"
#include "pacer/device/plugin_loader.h"
#include "plugins/simnpu/runtime/gate.h"

namespace pacer::simnpu {

const device::Plugin& plugin() {
  static const device::Plugin* const loaded = [] {
    setenv("SIMNPU_DEVICE_COUNT", "2", 1);
    setenv("SIMNPU_MEMORY_MB", "512", 1);
    setenv("SIMNPU_PINNED_MB", "64", 1);
    const device::Plugin* opened = device::open_plugin("simnpu");
    if (!opened) throw Error(ErrorKind::bug, "the plugin simnpu was not built");
    device::load_plugin(*opened);
    at::set_num_threads(1);
    return opened;
  }();
  return *loaded;
}

c10::Device npu(int index) { return c10::Device(plugin().torch_type, static_cast<c10::DeviceIndex>(index)); }

c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(plugin().torch_type); }

c10::Stream side_stream(int index) { return guard().getStreamFromGlobalPool(npu(index)); }

void synchronize(int index) { guard().synchronizeDevice(static_cast<c10::DeviceIndex>(index)); }

Held::Held(c10::Stream stream) : stream_(stream) { static_cast<Gate*>(stream_.native_handle())->hold(); }
void Held::release() { static_cast<Gate*>(stream_.native_handle())->release(); }

int64_t switch_value(const std::string& name) {
  for (const device::Switch& row : plugin().switches()) {
    if (row.name == name) return row.value;
  }
  throw Error(ErrorKind::bug, "no switch " + name);
}

SwitchScope::SwitchScope(std::string name, int64_t value) : name_(std::move(name)), before_(switch_value(name_)) {
  plugin().set_switch(name_, value);
}
SwitchScope::~SwitchScope() { plugin().set_switch(name_, before_); }

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().cpu().contiguous(), y = b.detach().cpu().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

}  // namespace pacer::simnpu
