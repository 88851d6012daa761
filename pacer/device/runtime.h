// Which device this process computes on. Opened once and passed by reference to whatever needs it.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>

#include "pacer/device/capabilities.h"

namespace pacer::device {

struct MemoryInfo {
  uint64_t total_bytes;      // physical memory of the device
  uint64_t available_bytes;  // what a new allocation may hope for
};

class Runtime {
 public:
  // spec: "auto" | "cpu". Logs what it chose and why.
  // Throws Error{usage} for a spec it does not know, Error{device} for a device that is not there.
  static Runtime open(const std::string& spec);

  c10::Device device() const { return device_; }
  const std::string& name() const { return name_; }  // "cpu"; what reports and checkpoints say
  bool can(Capability capability) const;
  MemoryInfo memory() const;
  int threads() const;            // intra-op threads in use
  void set_threads(int threads);  // 1 .. number of cores; throws Error{usage} otherwise

 private:
  explicit Runtime(c10::Device device, std::string name) : device_(device), name_(std::move(name)) {}
  c10::Device device_;
  std::string name_;
};

}  // namespace pacer::device
