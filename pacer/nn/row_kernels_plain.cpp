#include "pacer/nn/row_vector_plain.h"
//
#include "pacer/nn/row_kernel_sets.h"
#include "pacer/nn/row_kernels_body.h"

namespace pacer::nn {

const RowKernels<float> kPlainF32 = table<float, float, 1, 4>("plain");
const RowKernels<uint16_t> kPlainBf16 = table<uint16_t, float, 1, 4>("plain");

}  // namespace pacer::nn
