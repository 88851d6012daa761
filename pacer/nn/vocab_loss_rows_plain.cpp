#include "pacer/nn/vocab_loss_rows_body.h"

namespace pacer::nn::detail {

const VocabRowKernels& vocab_row_kernels_plain() { return kKernels; }

const VocabRowKernels& vocab_row_kernels() {
  static const VocabRowKernels& chosen = []() -> const VocabRowKernels& {
    if (const VocabRowKernels* kernels = vocab_row_kernels_avx512()) return *kernels;
    if (const VocabRowKernels* kernels = vocab_row_kernels_avx2()) return *kernels;
    return kKernels;
  }();
  return chosen;
}

}  // namespace pacer::nn::detail
