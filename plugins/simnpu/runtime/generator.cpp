#include "plugins/simnpu/runtime/generator.h"

#include <vector>

#include <ATen/CPUGeneratorImpl.h>

#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {

Generator::Generator(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(kDevice, index < 0 ? Runtime::get().current_device() : index),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      twin_(at::make_generator<at::CPUGeneratorImpl>(c10::default_rng_seed_val)) {}

c10::DeviceType Generator::device_type() { return kDevice; }

void Generator::set_current_seed(uint64_t seed) { twin_.set_current_seed(seed); }
uint64_t Generator::current_seed() const { return twin_.current_seed(); }
uint64_t Generator::seed() { return twin_.seed(); }
void Generator::set_offset(uint64_t offset) { twin_.set_offset(offset); }
uint64_t Generator::get_offset() const { return twin_.get_offset(); }
void Generator::set_state(const c10::TensorImpl& state) { twin_.unsafeGetGeneratorImpl()->set_state(state); }
c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const { return twin_.unsafeGetGeneratorImpl()->get_state(); }

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());
  copy->set_state(*get_state());
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static auto* all = [] {
    auto* list = new std::vector<at::Generator>;
    for (c10::DeviceIndex i = 0; i < Runtime::get().device_count(); ++i) {
      list->push_back(at::make_generator<Generator>(i));
    }
    return list;
  }();
  return all->at(static_cast<size_t>(index < 0 ? Runtime::get().current_device() : index));
}

const at::Generator& twin_of(const at::Generator& generator) {
  if (generator.device().type() != kDevice) return generator;
  return static_cast<const Generator*>(generator.unsafeGetGeneratorImpl())->twin();
}

}  // namespace pacer::simnpu
