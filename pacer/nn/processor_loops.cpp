#include "pacer/nn/processor_loops.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pacer::nn {

#ifdef __x86_64__
namespace {

volatile float sink;  // keeps the work from being left out

}  // namespace

[[gnu::target("avx512f"), gnu::optimize("O3")]] void fma_rounds(int64_t rounds) {
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
  __m512 sums[kMultiplierSums];
  for (__m512& sum : sums) sum = b;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kMultiplierSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, b);
  }
  for (const __m512& sum : sums) sink = sum[0];
}

[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16"), gnu::optimize("O3")]] void bf16_dot_rounds(int64_t rounds) {
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);  // pairs of bf16
  const auto a = reinterpret_cast<const __m512bh&>(ones);
  __m512 sums[kMultiplierSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kMultiplierSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, a);
  }
  for (const __m512& sum : sums) sink = sum[0];
}

void flush_cache(const void* memory, size_t bytes) {
  const char* at = static_cast<const char*>(memory);
  for (size_t i = 0; i < bytes; i += 64) _mm_clflush(at + i);
  _mm_mfence();
}

#else

void fma_rounds(int64_t) {}
void bf16_dot_rounds(int64_t) {}
void flush_cache(const void*, size_t) {}

#endif

}  // namespace pacer::nn
