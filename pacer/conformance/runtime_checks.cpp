#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include "pacer/base/error.h"
#include "pacer/conformance/checks.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/generators.h"
#include "pacer/device/prefetcher.h"
#include "pacer/device/streams.h"

namespace pacer::conformance {
namespace {

constexpr int64_t kSide = 128;

at::TensorOptions floats_on(const device::Runtime& runtime) {
  return at::TensorOptions().dtype(at::kFloat).device(runtime.device());
}

// Long enough on every device that a missing order shows: a chain of products of I / 2, so values stay known.
at::Tensor slow_value(const device::Runtime& runtime, double value) {
  at::Tensor x = at::full({kSide, kSide}, value, floats_on(runtime));
  for (int i = 0; i < 20; ++i) x = at::matmul(x, at::full({kSide, kSide}, 1.0 / kSide, floats_on(runtime)));
  return x;
}

// A block that is given back on its own stream, and more blocks asked for there than lie unused: the allocator may hand
// it out at once, unless it was recorded that another stream still reads it.
void ask_again(const device::Runtime& runtime, const c10::Stream& stream, at::Tensor& block) {
  block.reset();
  const c10::StreamGuard guard(stream);
  std::vector<at::Tensor> held;
  for (int i = 0; i < 8; ++i) held.push_back(at::full({kSide, kSide}, -1.0, floats_on(runtime)));
}

void events_order_streams(Scene& scene) {
  const c10::Stream first = device::new_stream(scene.runtime), second = device::new_stream(scene.runtime);
  device::Event made(scene.runtime);
  at::Tensor x;
  {
    const c10::StreamGuard guard(first);
    x = slow_value(scene.runtime, 3.0);
    made.record(first);
  }
  at::Tensor doubled;
  {
    const c10::StreamGuard guard(second);
    device::wait("conformance.second", second, made);
    device::record_stream("conformance.second_use", x, second);
    doubled = x * 2;
  }
  ask_again(scene.runtime, first, x);
  device::wait("conformance.result", device::current_stream(scene.runtime), second);
  device::record_stream("conformance.result_use", doubled, device::current_stream(scene.runtime));
  const at::Tensor result = doubled * 1;
  ask_again(scene.runtime, second, doubled);
  require_close("twice three on another stream", result, at::full({kSide, kSide}, 6.0), 1e-5);
}

// The host reads the event only: a copy to it would wait by itself.
void the_host_waits(Scene& scene) {
  const c10::Stream stream = device::new_stream(scene.runtime);
  device::Event made(scene.runtime);
  {
    const c10::StreamGuard guard(stream);
    slow_value(scene.runtime, 1.0);
    made.record(stream);
  }
  device::wait("conformance.host", made);
  // The stream may still give memory back behind the event.
  require(made.is_done(), "an event that was waited for is not done");
}

void pinned_staging(Scene& scene) {
  const at::Tensor pinned = device::pinned_empty(scene.runtime, {1000}, at::kFloat);
  pinned.copy_(at::arange(1000, at::kFloat));
  const at::Tensor there = device::to_device(scene.runtime, pinned);
  require(there.device() == scene.runtime.device(), "to_device gave a tensor on " + there.device().str());
  require_equal("values after both copies", device::to_host(there + 1), at::arange(1000, at::kFloat) + 1);
}

void memory_figures(Scene& scene) {
  device::reset_peak_memory(scene.runtime);
  const device::MemoryUse before = device::memory_use(scene.runtime);
  constexpr int64_t kBytes = 4 << 20;
  {
    const at::Tensor block = at::zeros({kBytes / 4}, floats_on(scene.runtime));
    const device::MemoryUse during = device::memory_use(scene.runtime);
    require(during.now_bytes >= before.now_bytes + kBytes, "4 MB more are in use, the figure grew from " +
                                                               std::to_string(before.now_bytes) + " to " +
                                                               std::to_string(during.now_bytes));
  }
  scene.runtime.synchronize();
  const device::MemoryUse after = device::memory_use(scene.runtime);
  require(after.now_bytes <= before.now_bytes, "released memory still counts as used");
  require(after.peak_bytes >= before.now_bytes + kBytes, "the peak does not hold the block that is gone");
  const device::MemoryInfo info = scene.runtime.memory();
  require(info.available_bytes > 0 && info.available_bytes <= info.total_bytes, "free memory exceeds all memory");
}

void generators(Scene& scene) {
  device::seed_generators(scene.runtime, 7);
  at::rand({64}, floats_on(scene.runtime));
  const device::GeneratorState state = device::generator_state(scene.runtime);
  require(state.product == scene.runtime.product(), "the state is of " + state.product);
  const at::Tensor first = at::rand({64}, floats_on(scene.runtime));
  require(device::restore_generator(scene.runtime, state, 0), "its own state was not taken");
  require_equal("numbers after the saved state", at::rand({64}, floats_on(scene.runtime)), first);
  device::GeneratorState other = state;
  other.product = "another";
  require(!device::restore_generator(scene.runtime, other, 5), "a state of another device was taken");
  const at::Tensor seeded = at::rand({64}, floats_on(scene.runtime));
  device::restore_generator(scene.runtime, other, 5);
  require_equal("numbers after the same seed", at::rand({64}, floats_on(scene.runtime)), seeded);
}

struct Batch {
  at::Tensor values;
};

void prefetching(Scene& scene) {
  constexpr int kBatches = 6;
  int made = 0;
  const at::Tensor one = slow_value(scene.runtime, 1.0);  // may still be in the making when the worker begins
  device::Prefetcher<Batch> prefetcher(
      scene.runtime,
      [&]() -> std::optional<Batch> {
        if (made == kBatches) throw Error(ErrorKind::data, "the seventh row is cut off");
        return Batch{one * slow_value(scene.runtime, static_cast<double>(made++))};
      },
      [](const Batch& batch) { return std::vector<at::Tensor>{batch.values}; }, 2);
  at::Tensor sum = at::zeros({kSide, kSide}, floats_on(scene.runtime));
  for (int i = 0; i < kBatches; ++i) {
    const auto batch = prefetcher.next();
    require(batch.has_value(), "the batches ended too early");
    sum.add_(batch->values);
  }
  require_close("0 + 1 + ... + 5 from another stream", sum, at::full({kSide, kSide}, 15.0), 1e-5);
  try {
    prefetcher.next();
  } catch (const Error& error) {
    require(std::string(error.what()) == "the seventh row is cut off", std::string("another error: ") + error.what());
    return;
  }
  throw Failed("the worker's error was lost");
}

std::string host_counts_elsewhere(const device::Runtime& runtime) {
  return runtime.can(device::Capability::streams) ? "" : "the operating system counts the host's memory";
}

}  // namespace

std::vector<Check> runtime_checks() {
  return {
      {"runtime.streams", "an event orders two streams, and memory used on another stream stays", events_order_streams},
      {"runtime.host_wait", "an event that the host waited for is done", the_host_waits},
      {"runtime.staging", "pinned memory to the device and back", pinned_staging},
      {"runtime.memory", "current and peak use count what is allocated", memory_figures, host_counts_elsewhere},
      {"runtime.generators", "random state is saved, restored, and seeded where it is of another device", generators},
      {"runtime.prefetch", "batches of a worker's stream arrive whole, its error as itself", prefetching}};
}

}  // namespace pacer::conformance
