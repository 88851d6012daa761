#include "pacer/nn/vocab_loss_rows_body.h"

namespace pacer::nn::detail {

#if defined(__x86_64__)
const VocabRowKernels* vocab_row_kernels_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
             ? &kKernels
             : nullptr;
}
#else
const VocabRowKernels* vocab_row_kernels_avx512() { return nullptr; }
#endif

}  // namespace pacer::nn::detail
