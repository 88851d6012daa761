#include "pacer/nn/block_attention_rows_body.h"

namespace pacer::nn::detail {

const BlockRowKernels& block_row_kernels_plain() { return kKernels; }

const BlockRowKernels& block_row_kernels() {
  static const BlockRowKernels& chosen = []() -> const BlockRowKernels& {
    if (const BlockRowKernels* kernels = block_row_kernels_avx512()) return *kernels;
    if (const BlockRowKernels* kernels = block_row_kernels_avx2()) return *kernels;
    return kKernels;
  }();
  return chosen;
}

}  // namespace pacer::nn::detail
