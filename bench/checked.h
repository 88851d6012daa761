// What the kernel benchmarks share: check first, then time.
#pragma once

#include <cmath>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <benchmark/benchmark.h>

namespace pacer::bench {

// ||found - expected|| / ||expected|| in f64; throws when it exceeds `bound`.
inline void require_close(const std::string& what, const at::Tensor& found, const at::Tensor& expected, double bound) {
  const at::Tensor reference = expected.detach().to(at::kDouble);
  const double error = ((found.detach().to(at::kDouble) - reference).norm() / reference.norm()).item<double>();
  if (!(error <= bound)) {
    throw std::runtime_error(what + " differs from its reference by " + std::to_string(error) + ", allowed is " +
                             std::to_string(bound));
  }
}

// main of every program. One thread: what a kernel costs, not how it is shared out.
inline int run_checked(int argc, char** argv, const std::function<void()>& check, const std::function<void()>& add) {
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    check();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  add();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

inline void set_rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] = benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace pacer::bench
