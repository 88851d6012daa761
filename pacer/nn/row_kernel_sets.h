// The tables of the instruction-set files, for row_kernels.cpp alone.
#pragma once

#include "pacer/nn/row_kernels.h"

namespace pacer::nn {

extern const RowKernels<float> kPlainF32;
extern const RowKernels<uint16_t> kPlainBf16;
// Null where the program was compiled for another processor family.
extern const RowKernels<float>* const kAvx2F32;
extern const RowKernels<uint16_t>* const kAvx2Bf16;
extern const RowKernels<float>* const kAvx512F32;
extern const RowKernels<uint16_t>* const kAvx512Bf16;
extern const RowKernels<uint16_t>* const kAvx512DotBf16;  // by an instruction for bf16

}  // namespace pacer::nn
