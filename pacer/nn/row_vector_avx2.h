// Sixteen floats as two AVX2 registers. For files that are compiled with -mavx2 -mfma only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace {

struct Vec {
  __m256 low, high;

  static Vec all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static Vec load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static Vec load(const uint16_t* from) { return {widened(from), widened(from + 8)}; }
  // Of sixteen pairs.
  static Vec load_first(const uint16_t* from) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(bits(from), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(bits(from + 16), 16))};
  }
  static Vec load_second(const uint16_t* from) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(bits(from), upper)),
            _mm256_castsi256_ps(_mm256_and_si256(bits(from + 16), upper))};
  }
  void store(float* to) const {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
  void store(uint16_t* to) const {
    const __m256i a = _mm256_srli_epi32(rounded(low), 16), b = _mm256_srli_epi32(rounded(high), 16);
    // The pack works in 128-bit halves; the permutation puts the quarters back in order.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
  }
  Vec as_bf16() const { return {_mm256_castsi256_ps(rounded(low)), _mm256_castsi256_ps(rounded(high))}; }

  friend Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static Vec multiply_add(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static Vec where_less(Vec a, Vec b, Vec yes, Vec no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
  }
  static Vec power_of_two(Vec n) { return {power_of_two(n.low), power_of_two(n.high)}; }
  float sum() const {
    const __m256 eight = _mm256_add_ps(low, high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  float largest() const {
    const __m256 eight = _mm256_max_ps(low, high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  // Into the second cache level: lines on their way to the first would push out the rows of x.
  // Always inline: GCC takes a function that does nothing but prefetch for one without effect, and drops its calls. A
  // volatile instruction in its place would keep the sums of a loop in memory.
  [[gnu::always_inline]] static void prefetch(const void* at) {
    _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T1);
  }
  [[gnu::always_inline]] static void prefetch_near(const void* at) {
    _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0);
  }

 private:
  static __m256i bits(const uint16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static __m256 widened(const uint16_t* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // To nearest, ties to even, lower half zero; a NaN stays one.
  static __m256i rounded(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i whole = _mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
    const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(whole, _mm256_set1_epi32(0x7fc00000), _mm256_castps_si256(nan));
  }
  static __m256 power_of_two(__m256 n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
};

}  // namespace
