#include "pacer/nn/row_vector_avx512.h"
//
#include "pacer/nn/row_kernel_sets.h"
#include "pacer/nn/row_kernels_body.h"

namespace pacer::nn {
namespace {

constexpr RowKernels<float> kF32 = table<float, 4, 8>("avx512");

}  // namespace

const RowKernels<float>* const kAvx512F32 = &kF32;

}  // namespace pacer::nn
