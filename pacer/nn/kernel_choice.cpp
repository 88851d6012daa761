#include "pacer/nn/kernel_choice.h"

#include <cstdlib>

#include "pacer/base/error.h"

namespace pacer::nn {

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_f16c() { return __builtin_cpu_supports("f16c"); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#else
bool has_avx2() { return false; }
bool has_f16c() { return false; }
bool has_avx512() { return false; }
bool has_avx512_bf16() { return false; }
bool has_avx512_vnni() { return false; }
#endif

std::string wished_kernels() {
  const char* wish = std::getenv("PACER_KERNELS");
  const std::string name = wish == nullptr ? "" : wish;
  if (!name.empty() && name != "plain" && name != "avx2" && name != "avx512") {
    throw Error(ErrorKind::usage, "PACER_KERNELS=" + name + " is not known; allowed are plain, avx2 and avx512",
                "unset PACER_KERNELS");
  }
  return name;
}

void refuse_kernels(const std::string& name, const std::string& what) {
  throw Error(ErrorKind::device, "PACER_KERNELS=" + name + ": this processor lacks the instructions for " + what,
              "unset PACER_KERNELS");
}

}  // namespace pacer::nn
