#include "pacer/bench/peaks.h"

#include "pacer/nn/kernel_choice.h"
#include "pacer/nn/processor_loops.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pacer::bench {

#ifdef __x86_64__
namespace {

constexpr int64_t kRounds = 1 << 22;
constexpr int kSums = nn::kMultiplierSums, kSumsOfAvx2 = 12;

volatile float sink;  // keeps the work from being left out

[[gnu::target("avx2,fma"), gnu::optimize("O3")]] void fma_avx2() {
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
  __m256 sums[kSumsOfAvx2];
  for (__m256& sum : sums) sum = b;
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSumsOfAvx2; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
  }
  for (const __m256& sum : sums) sink = sum[0];
}

// By hand: GCC 12 keeps the sums of this instruction in memory.
[[gnu::target("avx512f,avx512vnni")]] void dot_int8() {
  int64_t rounds = kRounds;
  asm volatile(
      "1:\n"
      ".irp sum, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vpdpbusd %%zmm31, %%zmm31, %%zmm\\sum\n"
      ".endr\n"
      "dec %0\n"
      "jnz 1b\n"
      : "+r"(rounds)
      :
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23");
}

[[gnu::target("avx512f"), gnu::optimize("O3")]] float read_avx512(const float* values, int64_t count) {
  constexpr int64_t kAhead = 8192 / sizeof(float), kLine = 16;
  __m512 sums[8];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t i = 0; i + 8 * kLine <= count; i += 8 * kLine) {
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(values + i + line * kLine + kAhead), _MM_HINT_T0);
      sums[line] = _mm512_add_ps(sums[line], _mm512_loadu_ps(values + i + line * kLine));
    }
  }
  float lanes[kLine], all = 0;
  for (int line = 1; line < 8; ++line) sums[0] = _mm512_add_ps(sums[0], sums[line]);
  _mm512_storeu_ps(lanes, sums[0]);
  for (const float lane : lanes) all += lane;
  return all;
}

Peak made(const char* instruction, int sums, int operations_each, void (*run)()) {
  return {instruction, static_cast<double>(kRounds) * sums * operations_each, run};
}

}  // namespace

std::optional<Peak> peak(const std::string& type) {
  if (type == "f32" && nn::has_avx512()) return made("vfmadd, 512 bits", kSums, 32, [] { nn::fma_rounds(kRounds); });
  if (type == "f32" && nn::has_avx2()) return made("vfmadd, 256 bits", kSumsOfAvx2, 16, fma_avx2);
  if (type == "bf16" && nn::bf16_dot_pays()) {
    return made("vdpbf16ps, 512 bits", kSums, 64, [] { nn::bf16_dot_rounds(kRounds); });
  }
  if (type == "bf16" && nn::has_avx512()) return peak("f32");  // of widened factors
  if (type == "int8" && nn::has_avx512_vnni()) return made("vpdpbusd, 512 bits", kSums, 128, dot_int8);
  return std::nullopt;
}

ReadAll read_all() { return nn::has_avx512() ? read_avx512 : nullptr; }

#else

std::optional<Peak> peak(const std::string&) { return std::nullopt; }
ReadAll read_all() { return nullptr; }

#endif

}  // namespace pacer::bench
