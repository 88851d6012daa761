#include "pacer/nn/kernel_choice.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/nn/processor_loops.h"

namespace pacer::nn {
namespace {

// The least of some, so that other work on the machine does not decide.
double seconds_of(void (*rounds)(int64_t)) {
  double least = 1e9;
  for (int i = 0; i < 9; ++i) {
    const double start = thread_cpu_seconds();
    rounds(2000);
    least = std::min(least, thread_cpu_seconds() - start);
  }
  return least;
}

}  // namespace

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_f16c() { return __builtin_cpu_supports("f16c"); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool is_intel() { return __builtin_cpu_is("intel"); }
bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1u << 22)) != 0;
}
#else
bool is_intel() { return false; }
bool has_amx_bf16() { return false; }
bool has_avx2() { return false; }
bool has_f16c() { return false; }
bool has_avx512() { return false; }
bool has_avx512_bf16() { return false; }
bool has_avx512_vnni() { return false; }
#endif

bool bf16_dot_pays() {
  // Twice the operations for at most 1.5 times the time; processors are far from this border on both sides.
  static const bool pays = has_avx512_bf16() && seconds_of(bf16_dot_rounds) < 1.5 * seconds_of(fma_rounds);
  return pays;
}

bool widens_bf16_products() {
  static const bool widens = has_avx512() && !has_amx_bf16() && !bf16_dot_pays();
  return widens;
}

std::string wished_kernels() {
  const char* wish = std::getenv("PACER_KERNELS");
  const std::string name = wish == nullptr ? "" : wish;
  if (!name.empty() && name != "plain" && name != "avx2" && name != "avx512" && name != "avx512-bf16") {
    throw Error(ErrorKind::usage,
                "PACER_KERNELS=" + name + " is not known; allowed are plain, avx2, avx512 and avx512-bf16",
                "unset PACER_KERNELS");
  }
  return name;
}

void refuse_kernels(const std::string& name, const std::string& what) {
  throw Error(ErrorKind::device, "PACER_KERNELS=" + name + ": this processor lacks the instructions for " + what,
              "unset PACER_KERNELS");
}

}  // namespace pacer::nn
