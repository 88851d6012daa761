// Sixteen floats as one AVX-512 register. For files that are compiled with -mavx512{f,bw,dq,vl} only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace {

struct Vec {
  __m512 v;

  static Vec all(float value) { return {_mm512_set1_ps(value)}; }
  static Vec load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Vec load(const uint16_t* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  // Of sixteen pairs.
  static Vec load_first(const uint16_t* from) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(from), 16))};
  }
  static Vec load_second(const uint16_t* from) {
    return {_mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(from), _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  void store(float* to) const { _mm512_storeu_ps(to, v); }
  void store(uint16_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded(), 16)));
  }
  Vec as_bf16() const { return {_mm512_castsi512_ps(rounded())}; }

  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Vec multiply_add(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec where_less(Vec a, Vec b, Vec yes, Vec no) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
  }
  static Vec power_of_two(Vec n) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
  }
  float sum() const {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  float largest() const { return _mm512_reduce_max_ps(v); }
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
  // To nearest, ties to even, lower half zero; a NaN stays one.
  __m512i rounded() const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i whole = _mm512_and_si512(sum, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_mask_blend_epi32(nan, whole, _mm512_set1_epi32(0x7fc00000));
  }
};

}  // namespace
