// In place of the AVX files on other processors.
#include "pacer/nn/quant_kernel_sets.h"

namespace pacer::nn {

const QuantKernels* const kAvx2Quant = nullptr;
const QuantKernels* const kAvx512Quant = nullptr;

}  // namespace pacer::nn
