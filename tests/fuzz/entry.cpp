// libFuzzer's side of one target (PACER_FUZZ_TARGET).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "pacer/base/clocks.h"
#include "tests/fuzz/targets.h"

// Inputs are small here (-max_len), and the sanitizers cost a factor of several: what a megabyte may take in the
// program itself is tested in bounds_test.cpp. CPU time, because the wall clock of a busy machine says nothing.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr double kMostSeconds = 2;
  const double start = pacer::thread_cpu_seconds();
  pacer::fuzz::PACER_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  if (pacer::thread_cpu_seconds() - start > kMostSeconds) {
    std::fprintf(stderr, "an input of %zu bytes took more than %.0f s of processor time\n", size, kMostSeconds);
    std::abort();
  }
  return 0;
}
