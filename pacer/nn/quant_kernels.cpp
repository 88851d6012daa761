#include "pacer/nn/quant_kernels.h"

#include "pacer/nn/kernel_choice.h"
#include "pacer/nn/quant_kernel_sets.h"

namespace pacer::nn {

std::vector<const QuantKernels*> available_quant_kernels() {
  std::vector<const QuantKernels*> sets = {&kPlainQuant};
  if (has_avx2() && has_f16c() && kAvx2Quant != nullptr) sets.push_back(kAvx2Quant);
  if (has_avx512_vnni() && kAvx512Quant != nullptr) sets.push_back(kAvx512Quant);
  return sets;
}

const QuantKernels& quant_kernels() {
  static const QuantKernels* const chosen = &chosen_kernels(available_quant_kernels(), "quantised weights");
  return *chosen;
}

}  // namespace pacer::nn
