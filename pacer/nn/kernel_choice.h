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
bool has_amx_bf16();
bool is_intel();

// Whether the instruction for products of bf16 does more than the one for f32 on widened factors. It does twice as much
// on some processors and half as much on others that have both, so it is timed, about 0.2 ms of the first call.
bool bf16_dot_pays();

// How our own kernels multiply bf16: by its instruction, or by the one for f32 on widened factors.
enum class Bf16Products { dot, widened };
inline Bf16Products bf16_products() { return bf16_dot_pays() ? Bf16Products::dot : Bf16Products::widened; }

// Whether the library's products of bf16 lose against its products of f32, which then get widened factors: the
// processor multiplies f32 in 512 bits, bf16_dot_pays() says no, and it has no tiles for bf16 (AMX), which only the
// library uses.
bool widens_bf16_products();

// The name in PACER_KERNELS, empty when unset. Throws Error{usage} for a name other than plain, avx2, avx512 and
// avx512-bf16.
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
  // Only products of bf16 have a set of that name.
  if (wish == "avx512-bf16" && what != "bf16" && std::string(sets.back()->name) == "avx512") return *sets.back();
  refuse_kernels(wish, what);
}

}  // namespace pacer::nn
