#include "pacer/optim/kernels.h"

#include <bit>
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
void adamw_elements_amsgrad(float* __restrict weight, const float* __restrict gradient, float* __restrict first,
                            float* __restrict second, float* __restrict largest, int64_t n,
                            const AdamWScalars& scalars) {
  const AdamWScalars s = scalars;
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * s.gradient_scale;
    const float m = first[i] + (g - first[i]) * s.first_rate;
    const float v = second[i] * s.second_keep + (g * g) * s.second_rate;
    const float top = largest[i] > v ? largest[i] : v;
    first[i] = m;
    second[i] = v;
    largest[i] = top;
    const float denominator = std::sqrt(top) / s.second_correction + s.epsilon;
    weight[i] = weight[i] * s.decay - s.step_size * (m / denominator);
  }
}

PACER_CLONES
void momentum_elements(float* __restrict momentum, const float* __restrict gradient, float* __restrict update,
                       int64_t n, const MomentumScalars& scalars) {
  const MomentumScalars s = scalars;
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * s.gradient_scale;
    const float buf = momentum[i] * s.keep + g * s.add;
    momentum[i] = buf;
    update[i] = g * s.gradient_share + buf * s.momentum_share;
  }
}

PACER_CLONES
void decayed_step(float* __restrict weight, const float* __restrict direction, int64_t n, float decay, float step) {
  for (int64_t i = 0; i < n; ++i) weight[i] = weight[i] * decay - step * direction[i];
}

PACER_CLONES
float largest_magnitude_of(const float* values, int64_t n) {
  // Without their sign the bits of floats are ordered like integers, infinity above all numbers and NaN above infinity.
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return std::bit_cast<float>(largest);
}

PACER_CLONES
double quotient_square_sum(const float* values, int64_t n, float divisor) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane] / divisor;
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) {
    const double value = values[i] / divisor;
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

PACER_CLONES
void normalised_f32(const float* __restrict values, float* __restrict out, int64_t n, float divisor, float factor) {
  for (int64_t i = 0; i < n; ++i) out[i] = values[i] / divisor * factor;
}

PACER_CLONES
void normalised_bf16(const float* __restrict values, uint16_t* __restrict out, int64_t n, float divisor, float factor) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i] / divisor * factor);  // finite: no case for NaN
    out[i] = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}

PACER_CLONES
void block_square_sums_of(const float* values, int64_t n, float* sums) {
  float squares[kNormBlock];
  for (int64_t begin = 0; begin < n; begin += kNormBlock) {
    const int64_t live = n - begin < kNormBlock ? n - begin : kNormBlock;
    for (int64_t i = 0; i < live; ++i) squares[i] = values[begin + i] * values[begin + i];
    for (int64_t i = live; i < kNormBlock; ++i) squares[i] = 0;
    for (int64_t half = kNormBlock / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) squares[i] += squares[i + half];
    }
    sums[begin / kNormBlock] = squares[0];
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
