// What the tests of the simulated NPU share: the loaded plugin, gates, switches, messages.
#pragma once

#include <functional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "pacer/device/plugin.h"

namespace pacer::simnpu {

// Opens and loads the plugin at the first call, with two devices of 512 MiB. Work on the CPU uses one thread from then
// on: sums must have one order to be compared bit by bit.
const device::Plugin& plugin();
c10::Device npu(int index = 0);
c10::impl::VirtualGuardImpl guard();

c10::Stream side_stream(int index = 0);  // one of the pool's, another one at each call for a while
void synchronize(int index = 0);         // throws what kernels left behind

// Holds a stream while it lives: what is queued does not start.
class Held {
 public:
  explicit Held(c10::Stream stream);
  ~Held() { release(); }
  void release();
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  c10::Stream stream_;
};

// Another value of a switch while it lives.
class SwitchScope {
 public:
  SwitchScope(std::string name, int64_t value);
  ~SwitchScope();
  SwitchScope(const SwitchScope&) = delete;
  SwitchScope& operator=(const SwitchScope&) = delete;

 private:
  std::string name_;
  int64_t before_;
};
int64_t switch_value(const std::string& name);

// what() without the backtrace of whatever the function throws; "" when it throws nothing.
std::string message_of(const std::function<void()>& function);

// Same dtype, sizes and bits (NaN included), wherever the two are.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace pacer::simnpu
