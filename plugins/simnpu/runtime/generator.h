// The random generator of a simulated device: a CPU generator behind the device's name, so that the CPU kernels which
// do the work accept it and draw the numbers that they draw on the CPU.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace pacer::simnpu {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex index);  // seeded with c10's default seed
  static c10::DeviceType device_type();

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;  // throws: the CPU's generator has no offset
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;  // bytes of the CPU generator's state

  const at::Generator& twin() const { return twin_; }

 private:
  Generator* clone_impl() const override;
  at::Generator twin_;
};

const at::Generator& default_generator(c10::DeviceIndex index);  // -1: the current device's
const at::Generator& twin_of(const at::Generator& generator);    // itself when it is no simulated one

}  // namespace pacer::simnpu
