#include "pacer/nn/row_vector_avx512.h"
//
#include "pacer/nn/row_kernel_sets.h"
#include "pacer/nn/row_kernels_body.h"

namespace pacer::nn {
namespace {

constexpr RowKernels<float> kF32 = table<float, float, 4, 8>("avx512");
constexpr RowKernels<uint16_t> kBf16 = table<uint16_t, float, 4, 8>("avx512");

}  // namespace

const RowKernels<float>* const kAvx512F32 = &kF32;
const RowKernels<uint16_t>* const kAvx512Bf16 = &kBf16;

}  // namespace pacer::nn
