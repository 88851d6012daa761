// In place of the AVX files on other processors.
#include "pacer/nn/row_kernel_sets.h"

namespace pacer::nn {

const RowKernels<float>* const kAvx2F32 = nullptr;
const RowKernels<uint16_t>* const kAvx2Bf16 = nullptr;
const RowKernels<float>* const kAvx512F32 = nullptr;
const RowKernels<uint16_t>* const kAvx512Bf16 = nullptr;
const RowKernels<uint16_t>* const kAvx512DotBf16 = nullptr;

}  // namespace pacer::nn
