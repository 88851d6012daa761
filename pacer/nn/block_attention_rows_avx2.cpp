#include "pacer/nn/block_attention_rows_body.h"

namespace pacer::nn::detail {

#if defined(__x86_64__)
const BlockRowKernels* block_row_kernels_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kKernels : nullptr;
}
#else
const BlockRowKernels* block_row_kernels_avx2() { return nullptr; }
#endif

}  // namespace pacer::nn::detail
