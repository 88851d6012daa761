// What the processor can do, and which of several kernel sets is used.
#pragma once

#include <string>
#include <vector>

namespace pacer::nn {

bool has_avx2();  // with FMA
bool has_f16c();
bool has_avx512();  // F, BW, DQ and VL
bool has_avx512_bf16();
bool has_avx512_vnni();

// The name in PACER_KERNELS, empty when unset. Throws Error{usage} for a name other than plain, avx2 and avx512.
std::string wished_kernels();

// Throws Error{device}: the set that was asked for is not among those that the processor has. what: "bf16".
[[noreturn]] void refuse_kernels(const std::string& name, const std::string& what);

// sets: those that the processor can run, the best one last.
template <typename Kernels>
const Kernels& chosen_kernels(const std::vector<const Kernels*>& sets, const std::string& what) {
  const std::string wish = wished_kernels();
  if (wish.empty()) return *sets.back();
  for (const Kernels* set : sets) {
    if (wish == set->name) return *set;
  }
  refuse_kernels(wish, what);
}

}  // namespace pacer::nn
