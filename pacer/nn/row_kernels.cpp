#include "pacer/nn/row_kernels.h"

#include <algorithm>
#include <type_traits>

#include "pacer/base/clocks.h"
#include "pacer/nn/kernel_choice.h"
#include "pacer/nn/processor_loops.h"
#include "pacer/nn/row_kernel_sets.h"

namespace pacer::nn {

template <typename T>
std::vector<const RowKernels<T>*> available_row_kernels() {
  std::vector<const RowKernels<T>*> sets;
  if constexpr (std::is_same_v<T, float>) {
    sets.push_back(&kPlainF32);
    if (has_avx2() && kAvx2F32 != nullptr) sets.push_back(kAvx2F32);
    if (has_avx512() && kAvx512F32 != nullptr) sets.push_back(kAvx512F32);
  } else {
    sets.push_back(&kPlainBf16);
    if (has_avx2() && kAvx2Bf16 != nullptr) sets.push_back(kAvx2Bf16);
    if (has_avx512() && kAvx512Bf16 != nullptr) sets.push_back(kAvx512Bf16);
    if (has_avx512_bf16() && kAvx512DotBf16 != nullptr) {
      sets.insert(bf16_dot_pays() ? sets.end() : sets.end() - 1, kAvx512DotBf16);
    }
  }
  return sets;
}

template <typename T>
const RowKernels<T>& row_kernels() {
  static const RowKernels<T>* const chosen =
      &chosen_kernels(available_row_kernels<T>(), sizeof(T) == 2 ? "bf16" : "f32");
  return *chosen;
}

Fetch measured_fetch() {
  static const Fetch faster = [] {
    // One row through a layer's weights, which are pushed out of the caches first.
    constexpr int64_t kSteps = 576, kPanels = 56;
    const RowKernels<float>& kernels = row_kernels<float>();
    const int64_t panel = kSteps * kernels.lanes;
    const std::vector<float> weights(static_cast<size_t>(kPanels * panel), 0.5f), x(kSteps, 0.5f);
    std::vector<float> y(static_cast<size_t>(kernels.lanes));
    double least[2] = {1e9, 1e9};
    for (int i = 0; i < 3; ++i) {
      for (const size_t way : {size_t{0}, size_t{1}}) {
        flush_cache(weights.data(), weights.size() * sizeof(float));
        const double start = thread_cpu_seconds();
        for (int64_t p = 0; p < kPanels; ++p) {
          kernels.product[way](x.data(), kSteps, 1, weights.data() + p * panel, kSteps, kernels.lanes, y.data(),
                               kernels.lanes);
        }
        least[way] = std::min(least[way], thread_cpu_seconds() - start);
      }
    }
    return least[1] < least[0] ? Fetch::far : Fetch::near;
  }();
  return faster;
}

template const RowKernels<float>& row_kernels<float>();
template const RowKernels<uint16_t>& row_kernels<uint16_t>();
template std::vector<const RowKernels<float>*> available_row_kernels<float>();
template std::vector<const RowKernels<uint16_t>*> available_row_kernels<uint16_t>();

}  // namespace pacer::nn
