// What this machine can do: single calls of the library, and its instructions by themselves.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <c10/core/InferenceMode.h>

#include "pacer/base/error.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/library_products.h"
#include "pacer/bench/models.h"
#include "pacer/bench/peaks.h"

namespace pacer::bench {
namespace {

std::vector<Call> calls(const Work& work, at::ScalarType dtype, Values& values, Result& result) {
  const std::string op = work.text("op");
  const auto rows = [&] { return values.normal({work.integer("m"), work.integer("n")}, 1.0, dtype); };
  if (op == "gemm") {
    const int64_t m = work.integer("m"), n = work.integer("n"), k = work.integer("k");
    const at::Tensor x = values.normal({m, k}, 1.0, dtype), weight = values.normal({n, k}, 0.02, dtype);
    result.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    result.bytes = static_cast<double>(x.nbytes() + weight.nbytes()) +
                   static_cast<double>(m * n) * static_cast<double>(c10::elementSize(dtype));
    return library_products(x, weight);
  }
  if (op == "copy" || op == "read") {
    const int64_t bytes = work.integer("mb") * 1'000'000;
    const at::Tensor from = at::ones({bytes / 4}, at::kFloat);
    result.bytes = static_cast<double>(from.nbytes()) * (op == "copy" ? 2.0 : 1.0);
    if (op == "read") {
      std::vector<Call> ways = {{"at::sum", [=] { from.sum(); }}};
      if (const ReadAll read = read_all()) {
        ways.push_back({"reading ahead", [=] { read(from.const_data_ptr<float>(), from.numel()); }});
      }
      return ways;
    }
    const at::Tensor to = at::ones({bytes / 4}, at::kFloat);
    return {{"memcpy", [=] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes()); }},
            {"at::copy_", [=] { at::Tensor(to).copy_(from); }}};
  }
  if (op == "peak") {
    const std::string type = work.has("type") ? work.text("type") : dtype == at::kFloat ? "f32" : "bf16";
    const std::optional<Peak> products = peak(type);
    if (!products) throw Error(ErrorKind::device, "this processor has no instruction for products of " + type);
    result.flops = products->operations;
    return {{products->instruction, products->run}};
  }
  if (op == "softmax") {
    const at::Tensor x = rows();
    result.bytes = 2.0 * static_cast<double>(x.nbytes());
    return {{"at::softmax", [=] { at::softmax(x, -1); }}};
  }
  if (op == "exp") {
    const at::Tensor x = rows();
    const at::Tensor y = at::empty(x.sizes(), x.options());
    result.bytes = 2.0 * static_cast<double>(x.nbytes());
    return {{"at::exp_out", [=] {
               at::Tensor out = y;
               at::exp_out(out, x);
             }}};
  }
  throw Error(ErrorKind::format, "roofline." + work.name() + ".op is '" + op +
                                     "', allowed: 'gemm', 'peak', 'copy', 'read', 'softmax', 'exp'");
}

}  // namespace

Result roofline(const Work& work, const Settings& settings, device::Runtime&) {
  const c10::InferenceMode inference;
  Values values(work.seed());
  Result best;
  Result sizes;
  const std::vector<Call> ways = calls(work, settings.scalar_type(), values, sizes);
  double fastest = std::numeric_limits<double>::infinity();
  for (const Call& way : ways) {
    Result result = sizes;
    result.timings = time_work(work, settings, way.run);
    const double cpu = median(result.timings.cpu);
    if (cpu >= fastest) continue;
    fastest = cpu;
    result.work = {{"op", work.text("op")}, {"call", way.name}};
    if (result.flops) result.work["gflop_per_cpu_s"] = *result.flops / cpu * 1e-9;
    if (result.bytes) result.work["gb_per_cpu_s"] = *result.bytes / cpu * 1e-9;
    if (work.has("m")) {
      result.work["m"] = work.integer("m"), result.work["n"] = work.integer("n");
      if (work.has("k")) result.work["k"] = work.integer("k");
      if (!result.flops) {
        result.work["g_elements_per_cpu_s"] = static_cast<double>(work.integer("m") * work.integer("n")) / cpu * 1e-9;
      }
    }
    best = std::move(result);
  }
  return best;
}

}  // namespace pacer::bench
