// The optimizer step of a whole model with given gradients, and the forward and backward that it is a share of.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include "pacer/base/error.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/models.h"
#include "pacer/optim/optimizer.h"
#include "pacer/parallel/ownership_plan.h"
#include "pacer/target/autograd_forward.h"
#include "pacer/target/weights.h"

namespace pacer::bench {
namespace {

using Parameters = std::map<std::string, at::Tensor>;

Parameters random_parameters(const target::ModelConfig& config, Values& values) {
  Parameters parameters;
  for (const auto& [name, shape] : target::weight_shapes(config)) {
    parameters[name] =
        name.ends_with("norm.weight") ? at::ones(shape, at::kFloat) : values.normal(shape, 0.02, at::kFloat);
    parameters[name].requires_grad_(true);
  }
  return parameters;
}

int64_t elements(const Parameters& parameters) {
  int64_t sum = 0;
  for (const auto& [name, weight] : parameters) sum += weight.numel();
  return sum;
}

optim::OptimizerOptions options_of(const Work& work, const std::string& optimizer, at::ScalarType dtype) {
  using Form = optim::NewtonSchulzOptions::Form;
  optim::OptimizerOptions options;
  if (optimizer.starts_with("adamw")) return options;
  options.routes.matrix = optim::Route::muon;
  options.muon.momentum = work.number("momentum");
  options.muon.nesterov = work.flag("nesterov");
  options.muon_rate = work.number("lr") / work.number("adamw_lr");
  optim::NewtonSchulzOptions& iteration = options.muon.newton_schulz;
  iteration.storage = dtype;
  if (optimizer == "muon_gram") iteration.form = Form::gram;
  if (optimizer == "muon_gram" || optimizer == "muon") return options;
  if (optimizer != "muon_direct" && optimizer != "muon_quintic") {
    throw Error(ErrorKind::format, "muon_step." + work.name() + ".optimizer is '" + optimizer +
                                       "', allowed: adamw…, muon, muon_gram, muon_direct, muon_quintic, none");
  }
  iteration.form = Form::direct;
  iteration.restarts.clear();
  if (optimizer == "muon_quintic") iteration.coefficients = optim::jordan(work.integer("ns_steps"));
  return options;
}

// CPU seconds of a memcpy per byte read or written: what memory allows at this moment. Of 256 MB, or of as much as the
// step moves when that is less.
double copy_seconds_per_byte(double bytes) {
  const int64_t elements = std::clamp<int64_t>(static_cast<int64_t>(bytes / 8), 1 << 12, 64'000'000);
  const at::Tensor from = at::ones({elements}, at::kFloat), to = at::ones({elements}, at::kFloat);
  const Timings timings =
      time_steps(1, 5, [&] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes()); });
  return median(timings.cpu) / (2.0 * static_cast<double>(from.nbytes()));
}

// Times the step of one parameter of each shape alone, and adds up what the owners of a plan would have to do.
// W -> the slowest owner's share of all Muon work times W; 1 is perfect.
OrderedJson slowest_owner(const optim::Optimizer& optimizer, const Parameters& parameters,
                          const optim::OptimizerOptions& options, bool pack) {
  std::map<std::vector<int64_t>, double> seconds;
  std::vector<parallel::PlanParameter> planned;
  for (const optim::RoutedParameter& routed : optimizer.routed()) {
    if (routed.route != optim::Route::muon) continue;
    parallel::PlanParameter parameter;
    parameter.name = routed.name, parameter.shape = routed.sizes;
    planned.push_back(parameter);
    if (seconds.contains(routed.sizes)) continue;
    optim::MuonParameter one;
    one.name = routed.name;
    one.weight = parameters.at(routed.name).detach().clone();
    one.gradient = parameters.at(routed.name).grad();
    one.momentum = optim::zero_momentum(one.weight, options.muon);
    one.rate = 1e-3;
    seconds[routed.sizes] = median(time_steps(1, 3, [&] { optim::muon_update({one}, options.muon); }).cpu);
  }
  parallel::PlanOptions plan_options;
  plan_options.pack_small = pack;
  OrderedJson shares = OrderedJson::object();
  for (const int64_t ranks : {2, 4, 8}) {
    parallel::Mesh mesh;
    mesh.shard = ranks;
    const auto plan = parallel::make_ownership_plan(planned, mesh, plan_options);
    std::vector<double> load(static_cast<size_t>(ranks));
    double sum = 0;
    for (const parallel::Assignment& assignment : plan.order) {
      const double cost = seconds.at(plan.parameters[static_cast<size_t>(assignment.parameter)].shape);
      load[static_cast<size_t>(assignment.owner.shard)] += cost, sum += cost;
    }
    shares[std::to_string(ranks)] = *std::ranges::max_element(load) * static_cast<double>(ranks) / sum;
  }
  return shares;
}

Result forward_backward(const Work& work, const Settings& settings) {
  const target::ModelConfig config = work.model("model");
  Values values(work.seed());
  const Parameters parameters = random_parameters(config, values);
  target::WeightMap weights = parameters;
  if (config.tied_embeddings) weights["lm_head.weight"] = weights.at("model.embed_tokens.weight");
  const int64_t batch = work.integer("batch"), seq = work.integer("seq");
  std::vector<std::vector<int64_t>> sequences;
  for (int64_t i = 0; i < batch; ++i) sequences.push_back(values.tokens(seq, config.vocab_size));
  const target::TokenBatch tokens = target::TokenBatch::packed(sequences);
  Result result;
  double loss = 0;
  result.timings = time_work(work, settings, [&] {
    const at::Tensor logits = target::differentiable_logits(config, weights, tokens);
    at::Tensor sum;
    for (int64_t i = 0; i < batch; ++i) {
      const at::Tensor rows = logits.slice(0, i * seq, (i + 1) * seq - 1).log_softmax(-1);
      const at::Tensor next = tokens.ids.slice(0, i * seq + 1, (i + 1) * seq).unsqueeze(1);
      const at::Tensor part = rows.gather(1, next).sum();
      sum = sum.defined() ? sum + part : part;
    }
    const at::Tensor mean = -sum / static_cast<double>(batch * (seq - 1));
    mean.backward();
    loss = mean.item<double>();
    for (const auto& [name, weight] : parameters) at::Tensor(weight).mutable_grad() = at::Tensor();
  });
  result.loss = loss;
  result.work = {{"parameters", elements(parameters)}, {"tokens", batch * seq}, {"computed_in", "f32"}};
  return result;
}

}  // namespace

Result muon_step(const Work& work, const Settings& settings, device::Runtime&) {
  const std::string name = work.text("optimizer");
  if (name == "none") return forward_backward(work, settings);
  Values values(work.seed());
  const Parameters parameters = random_parameters(work.model("model"), values);
  for (const auto& [parameter, weight] : parameters) {
    at::Tensor(weight).mutable_grad() = values.normal(weight.sizes().vec(), 1e-3, at::kFloat);
  }
  const optim::OptimizerOptions options = options_of(work, name, settings.scalar_type());
  optim::Optimizer optimizer(parameters, options);
  Result result;
  result.timings = time_work(work, settings, [&] { optimizer.step(work.number("adamw_lr"), 1.0); });
  const double cpu = median(result.timings.cpu);
  int64_t matrices = 0;
  double flops = 0, bytes = 0;
  for (const optim::RoutedParameter& routed : optimizer.routed()) {
    const double size = static_cast<double>(parameters.at(routed.name).nbytes());
    if (routed.route == optim::Route::muon) {
      ++matrices;
      flops += optim::newton_schulz_flops(routed.sizes[0], routed.sizes[1], options.muon.newton_schulz);
      bytes += 5 * size;  // weight and momentum both ways, gradient
    } else {
      bytes += 7 * size;  // weight and both moments both ways, gradient
    }
  }
  result.bytes = bytes;
  result.work = {{"parameters", elements(parameters)}, {"matrices", matrices}};
  const double copy = bytes * copy_seconds_per_byte(bytes);
  if (matrices == 0) {
    result.work["copy_of_its_bytes_cpu_s"] = copy;
    result.work["over_copy_of_its_bytes"] = cpu / copy;
    return result;
  }
  result.flops = flops;
  result.work["gflop_per_cpu_s"] = flops / cpu * 1e-9;
  result.work["slowest_owner_times_ranks"] = slowest_owner(optimizer, parameters, options, /*pack=*/false);
  result.work["slowest_owner_times_ranks_packed"] = slowest_owner(optimizer, parameters, options, /*pack=*/true);
  return result;
}

}  // namespace pacer::bench
