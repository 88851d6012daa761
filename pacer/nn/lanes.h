// Sixteen f32 lanes by the compiler's vector types: one source for every instruction set. Everything has internal
// linkage, because files compiled for different processors include it and the linker must not share their code.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace pacer::nn {
namespace {

constexpr int64_t kLanes = 16;
using Lanes = float __attribute__((vector_size(64)));
using IntLanes = int32_t __attribute__((vector_size(64)));

#define PACER_LANES [[maybe_unused, gnu::always_inline]] inline

PACER_LANES Lanes load(const float* from) {
  Lanes x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
PACER_LANES void store(float* to, const Lanes& x) { std::memcpy(to, &x, sizeof x); }
PACER_LANES Lanes all(float value) { return value - Lanes{}; }

// The first `count` lanes from memory, the others `rest`.
PACER_LANES Lanes load_part(const float* from, int64_t count, float rest) {
  Lanes x = all(rest);
  std::memcpy(&x, from, static_cast<size_t>(count) * sizeof(float));
  return x;
}
PACER_LANES void store_part(float* to, const Lanes& x, int64_t count) {
  std::memcpy(to, &x, static_cast<size_t>(count) * sizeof(float));
}

// The first `count` lanes from memory, the others 0; and back.
PACER_LANES Lanes load_some(const float* from, int64_t count) { return load_part(from, count, 0.0f); }
PACER_LANES void store_some(float* to, const Lanes& x, int64_t count) { store_part(to, x, count); }

// bf16 comes back to the nearest, ties to even. A NaN stays one unless its low bits are all ones, which no arithmetic
// on such values makes (narrow() in bfloat16.h is for any).
PACER_LANES Lanes load_some(const uint16_t* from, int64_t count) {
  using Bits = uint32_t __attribute__((vector_size(64)));
  using Half = uint16_t __attribute__((vector_size(32)));
  Half half{};
  std::memcpy(&half, from, static_cast<size_t>(count) * sizeof(uint16_t));
  return std::bit_cast<Lanes>(__builtin_convertvector(half, Bits) << 16);
}
PACER_LANES void store_some(uint16_t* to, const Lanes& x, int64_t count) {
  using Bits = uint32_t __attribute__((vector_size(64)));
  using Half = uint16_t __attribute__((vector_size(32)));
  const Bits bits = std::bit_cast<Bits>(x);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Half half = __builtin_convertvector(rounded, Half);
  std::memcpy(to, &half, static_cast<size_t>(count) * sizeof(uint16_t));
}

PACER_LANES Lanes larger(const Lanes& a, const Lanes& b) { return a > b ? a : b; }

// Folded in halves: a fixed order.
PACER_LANES float sum_of(const Lanes& x) {
  float part[kLanes];
  store(part, x);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) part[lane] += part[lane + width];
  }
  return part[0];
}
// sum of a_i b_i.
PACER_LANES float dot_of(const float* a, const float* b, int64_t n) {
  Lanes total{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) total += load(a + i) * load(b + i);
  if (i < n) total += load_part(a + i, n - i, 0.0f) * load_part(b + i, n - i, 0.0f);
  return sum_of(total);
}
PACER_LANES float largest_of(const Lanes& x) {
  float part[kLanes];
  store(part, x);
  float best = part[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) best = part[lane] > best ? part[lane] : best;
  return best;
}

// e^x for x <= 88, relative error below 2e-7; exactly 0 below -87. Cody and Waite's reduction, the polynomial of
// Cephes.
PACER_LANES Lanes exp_of(const Lanes& x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Lanes clamped = larger(x, all(-87.0f));
  const Lanes shifted = clamped * 1.44269504088896341f + kRound;
  const Lanes n = shifted - kRound;
  const Lanes r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const IntLanes power = (std::bit_cast<IntLanes>(shifted) - std::bit_cast<int32_t>(kRound) + 127) << 23;
  const Lanes y = p * std::bit_cast<Lanes>(power);
  return x < -87.0f ? Lanes{} : y;
}

}  // namespace
}  // namespace pacer::nn
