// Which device this process computes on. Opened once and passed by reference to whatever needs it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "pacer/device/capabilities.h"

namespace pacer::device {

struct Plugin;

struct MemoryInfo {
  uint64_t total_bytes;      // physical memory of the device
  uint64_t available_bytes;  // what a new allocation may hope for
};

class Runtime {
 public:
  // spec: "auto" | "cpu" | "cuda[:i]" | "npu[:i]" | "simnpu[:i]", or the product of another plugin; i counts visible
  // devices. Without an index the local rank chooses. `auto` takes an NPU that works, else CUDA, else the host, never
  // a simulator. The device becomes the current one of this thread. Logs what it chose and why.
  //
  // Throws Error{usage} for a spec it does not know; Error{device} for a device that was asked for and is not there,
  // for a back end that is there and broken (also under `auto`: nothing is silently replaced), for a second foreign
  // back end in one process, and for fewer devices than ranks.
  static Runtime open(const std::string& spec);

  c10::Device device() const { return device_; }           // as LibTorch spells it, with index
  const std::string& product() const { return product_; }  // "cpu", "cuda", "npu", "simnpu"
  const std::string& name() const { return name_; }        // "cpu", "simnpu:1"; what reports and checkpoints say
  bool can(Capability capability) const { return capabilities_->has(capability); }
  const Capabilities& capabilities() const { return *capabilities_; }
  const Plugin* plugin() const { return plugin_; }  // null for the host
  MemoryInfo memory() const;
  int threads() const;            // intra-op threads of the host in use
  void set_threads(int threads);  // 1 .. number of cores; throws Error{usage} otherwise

  void bind_thread() const;  // makes the device the current one of the calling thread; nothing on the host
  void synchronize() const;  // until all work queued on the device is done; nothing on the host

 private:
  Runtime() : device_(c10::kCPU) {}
  static Runtime host(const std::string& why);
  static Runtime accelerator(const Plugin& plugin, int torch_index, const std::string& why);

  c10::Device device_;
  std::string product_, name_;
  const Plugin* plugin_ = nullptr;
  std::shared_ptr<const Capabilities> capabilities_;
};

}  // namespace pacer::device
