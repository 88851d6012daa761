// Newton-Schulz on matrices of one shape, against the plain way of computing the direct form with the library.
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include "pacer/base/error.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/models.h"
#include "pacer/bench/peaks.h"
#include "pacer/optim/newton_schulz.h"

namespace pacer::bench {
namespace {

// As one writes it down: three products an iteration, by mm for one matrix and bmm for several.
at::Tensor plain_direct(const at::Tensor& matrices, const optim::Coefficients& coefficients, at::ScalarType dtype) {
  const bool single = matrices.size(0) == 1;
  at::Tensor x = single ? matrices[0] : matrices;
  x = (x / (single ? x.norm() : x.norm(2, {1, 2}, /*keepdim=*/true)).add(1e-7)).to(dtype);
  const auto product = [single](const at::Tensor& a, const at::Tensor& b) {
    return single ? at::mm(a, b) : at::bmm(a, b);
  };
  for (const optim::Triple& t : coefficients) {
    const at::Tensor a = product(x, x.transpose(-2, -1));
    const at::Tensor p = product(a, a).mul_(t.c).add_(a, t.b);
    x = product(p, x).add_(x, t.a);
  }
  return (single ? x.unsqueeze(0) : x).to(at::kFloat);
}

}  // namespace

Result muon_ns(const Work& work, const Settings& settings, device::Runtime&) {
  const c10::InferenceMode inference;
  const std::vector<int64_t> shape = work.integers("shape");
  if (shape.size() != 2) throw Error(ErrorKind::format, "muon_ns." + work.name() + ".shape: expected [rows, columns]");
  const int64_t count = work.integer_or("count", 1), rows = shape[0], columns = shape[1];
  Values values(work.seed());
  const at::Tensor matrices = values.normal({count, rows, columns}, 1.0, at::kFloat);

  optim::NewtonSchulzOptions options;
  options.storage = settings.scalar_type();
  if (work.integer("ns_steps") != static_cast<int64_t>(options.coefficients.size())) {
    throw Error(ErrorKind::format, "muon_ns." + work.name() + ".ns_steps is " +
                                       std::to_string(work.integer("ns_steps")) + ", these coefficients have " +
                                       std::to_string(options.coefficients.size()));
  }
  const auto form = optim::form_for(rows, columns, options);
  Result result;
  at::Tensor own, plain;
  result.timings = time_work(work, settings, [&] { own = optim::newton_schulz(matrices, options); });
  const Timings baseline =
      time_work(work, settings, [&] { plain = plain_direct(matrices, options.coefficients, options.storage); });

  const double cpu = median(result.timings.cpu), plain_cpu = median(baseline.cpu);
  result.flops = static_cast<double>(count) * optim::newton_schulz_flops(rows, columns, options);
  result.work = {{"rows", rows},
                 {"columns", columns},
                 {"count", count},
                 {"form", form == optim::NewtonSchulzOptions::Form::direct ? "direct" : "gram"},
                 {"restarts", options.restarts},
                 {"iterations", options.coefficients.size()},
                 {"gflop_per_cpu_s", *result.flops / cpu * 1e-9},
                 {"plain_direct_cpu_median_s", plain_cpu},
                 {"times_faster_than_plain_direct", plain_cpu / cpu},
                 {"distance_to_plain_direct", ((own - plain).norm() / plain.norm()).item<double>()}};
  if (const auto products = peak(settings.dtype)) {
    // With every multiplier at work all the time: what no form with these operations can pass.
    const Timings bound = time_work(work, settings, products->run);
    const double rate = products->operations / median(bound.cpu);
    result.work["peak_gflop_per_cpu_s"] = rate * 1e-9;
    result.work["times_faster_at_peak"] = plain_cpu * rate / *result.flops;
  }
  return result;
}

}  // namespace pacer::bench
