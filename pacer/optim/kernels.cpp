#include "pacer/optim/kernels.h"

#include <cmath>

// One source, several instruction sets, chosen by the loader. It cannot change results: see kernels.h.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PACER_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PACER_CLONES
#endif

namespace pacer::optim {

PACER_CLONES
void adamw_elements(float* __restrict weight, const float* __restrict gradient, float* __restrict first,
                    float* __restrict second, int64_t n, const AdamWScalars& scalars) {
  const AdamWScalars s = scalars;
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * s.gradient_scale;
    const float m = first[i] + (g - first[i]) * s.first_rate;
    const float v = second[i] * s.second_keep + (g * g) * s.second_rate;
    first[i] = m;
    second[i] = v;
    const float denominator = std::sqrt(v) / s.second_correction + s.epsilon;
    weight[i] = weight[i] * s.decay - s.step_size * (m / denominator);
  }
}

PACER_CLONES
double square_sum(const float* values, int64_t n) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) {
    const double value = values[i];
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace pacer::optim
