#include "pacer/nn/row_kernels.h"

#include <type_traits>

#include "pacer/nn/kernel_choice.h"
#include "pacer/nn/row_kernel_sets.h"

namespace pacer::nn {

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

template <typename T>
const RowKernels<T>& row_kernels() {
  static const RowKernels<T>* const chosen =
      &chosen_kernels(available_row_kernels<T>(), sizeof(T) == 2 ? "bf16" : "f32");
  return *chosen;
}

template const RowKernels<float>& row_kernels<float>();
template const RowKernels<uint16_t>& row_kernels<uint16_t>();
template std::vector<const RowKernels<float>*> available_row_kernels<float>();
template std::vector<const RowKernels<uint16_t>*> available_row_kernels<uint16_t>();

}  // namespace pacer::nn
