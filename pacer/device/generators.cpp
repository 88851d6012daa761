#include "pacer/device/generators.h"

#include <algorithm>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>

#include "pacer/base/logging.h"

namespace pacer::device {
namespace {

const at::Generator& generator_of(c10::Device device) { return at::globalContext().defaultGenerator(device); }

void seed(at::Generator generator, uint64_t value) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(value);
}

}  // namespace

void seed_generators(const Runtime& runtime, uint64_t value) {
  seed(generator_of(c10::Device(c10::kCPU)), value);
  if (runtime.plugin() != nullptr) seed(generator_of(runtime.device()), value);
}

GeneratorState generator_state(const Runtime& runtime) {
  at::Generator generator = generator_of(runtime.device());
  const std::lock_guard lock(generator.mutex());
  const at::Tensor bytes = generator.get_state().contiguous();  // u8 on the host, on every device
  const auto* data = bytes.const_data_ptr<uint8_t>();
  return {runtime.product(), {data, data + bytes.numel()}};
}

bool restore_generator(const Runtime& runtime, const GeneratorState& state, uint64_t value) {
  if (state.product != runtime.product() || state.bytes.empty()) {
    seed_generators(runtime, value);
    log_warning("the saved state of random numbers is of " +
                (state.product.empty() ? std::string("no device") : "device " + state.product) + ", not of " +
                runtime.product() + ": they begin anew from seed " + std::to_string(value));
    return false;
  }
  at::Tensor bytes = at::empty({static_cast<int64_t>(state.bytes.size())}, at::kByte);
  std::ranges::copy(state.bytes, bytes.mutable_data_ptr<uint8_t>());
  at::Generator generator = generator_of(runtime.device());
  const std::lock_guard lock(generator.mutex());
  generator.set_state(bytes);
  return true;
}

}  // namespace pacer::device
