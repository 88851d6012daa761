#include "pacer/nn/row_kernels.h"

#include <cstdlib>
#include <type_traits>

#include "pacer/base/error.h"
#include "pacer/nn/row_kernel_sets.h"

namespace pacer::nn {
namespace {

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512_bf16() { return false; }
#endif

}  // namespace

template <typename T>
std::vector<const RowKernels<T>*> available_row_kernels() {
  std::vector<const RowKernels<T>*> sets;
  if constexpr (std::is_same_v<T, float>) {
    sets.push_back(&kPlainF32);
    if (has_avx2() && kAvx2F32 != nullptr) sets.push_back(kAvx2F32);
    if (has_avx512() && kAvx512F32 != nullptr) sets.push_back(kAvx512F32);
  } else {
    sets.push_back(&kPlainBf16);
    if (has_avx2() && kAvx2Bf16 != nullptr) sets.push_back(kAvx2Bf16);
    if (has_avx512_bf16() && kAvx512Bf16 != nullptr) sets.push_back(kAvx512Bf16);
  }
  return sets;
}

namespace {

template <typename T>
const RowKernels<T>& choose() {
  const std::vector<const RowKernels<T>*> sets = available_row_kernels<T>();
  const char* wish = std::getenv("PACER_KERNELS");
  if (wish == nullptr || *wish == '\0') return *sets.back();
  const std::string name = wish;
  for (const RowKernels<T>* set : sets) {
    if (name == set->name) return *set;
  }
  const std::string what = "PACER_KERNELS=" + name;
  if (name == "plain" || name == "avx2" || name == "avx512") {
    throw Error(ErrorKind::device,
                what + ": this processor lacks the instructions for " + (sizeof(T) == 2 ? "bf16" : "f32"),
                "unset PACER_KERNELS");
  }
  throw Error(ErrorKind::usage, what + " is not known; allowed are plain, avx2 and avx512", "unset PACER_KERNELS");
}

}  // namespace

template <typename T>
const RowKernels<T>& row_kernels() {
  static const RowKernels<T>& chosen = choose<T>();
  return chosen;
}

template const RowKernels<float>& row_kernels<float>();
template const RowKernels<uint16_t>& row_kernels<uint16_t>();
template std::vector<const RowKernels<float>*> available_row_kernels<float>();
template std::vector<const RowKernels<uint16_t>*> available_row_kernels<uint16_t>();

}  // namespace pacer::nn
