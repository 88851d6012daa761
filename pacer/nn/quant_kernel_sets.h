// The tables of the instruction-set files, for quant_kernels.cpp alone.
#pragma once

#include "pacer/nn/quant_kernels.h"

namespace pacer::nn {

extern const QuantKernels kPlainQuant;
// Null where the program was compiled for another processor family.
extern const QuantKernels* const kAvx2Quant;
extern const QuantKernels* const kAvx512Quant;

}  // namespace pacer::nn
