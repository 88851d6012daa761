#include "pacer/nn/row_vector_avx2.h"
//
#include "pacer/nn/row_kernel_sets.h"
#include "pacer/nn/row_kernels_body.h"

namespace pacer::nn {
namespace {

// Sixteen registers hold the sums of three rows by two vectors, and what they are made from.
constexpr RowKernels<float> kF32 = table<float, float, 2, 3>("avx2");
constexpr RowKernels<uint16_t> kBf16 = table<uint16_t, float, 2, 3>("avx2");

}  // namespace

const RowKernels<float>* const kAvx2F32 = &kF32;
const RowKernels<uint16_t>* const kAvx2Bf16 = &kBf16;

}  // namespace pacer::nn
