#include "pacer/train/engine_setup.h"

#include <utility>

#include "pacer/base/error.h"
#include "pacer/train/checkpoint_schema.h"
#include "pacer/train/draft_setup.h"
#include "pacer/train/optimizer_setup.h"

namespace pacer::train {

std::unique_ptr<parallel::Engine> make_engine(const Recipe& recipe, Ranks& ranks,
                                              const std::map<std::string, at::Tensor>& masters,
                                              std::vector<parallel::Segment> segments, std::vector<size_t> calls) {
  const optim::OptimizerOptions optimizer = optimizer_options(recipe.optimizer);
  const ParallelSection& section = recipe.parallel;
  std::vector<parallel::EngineParameter> parameters;
  for (const optim::RoutedParameter& routed : routed_parameters(masters, optimizer)) {
    parameters.push_back({.name = routed.name,
                          .weight = masters.at(routed.name),
                          .route = routed.route,
                          .message_dtype = parse_dtype(section.message_dtype),
                          .rate = routed.rate,
                          .weight_decay = routed.weight_decay,
                          .matrices = routed.layout});
  }
  parallel::EngineOptions options;
  options.mesh = ranks.mesh();
  options.reduction = {.micro_batches = recipe.data.accumulation,
                       .accumulation = parallel::parse_accumulation(section.accumulation),
                       .exact = section.exact};
  options.update = {.muon = optimizer.muon, .muon_weight_decay = optimizer.muon_weight_decay, .adamw = optimizer.adamw};
  options.plan.cost_model = parallel::CostModel::route;
  options.unshard = parallel::parse_unshard(section.unshard);
  options.free_weights = section.free_weights;
  options.overlap = section.overlap;
  options.clip = recipe.optimizer.clip;
  return std::make_unique<parallel::Engine>(ranks.world(), std::move(parameters), std::move(segments), std::move(calls),
                                            options);
}

parallel::StepRates step_rates(const OptimizerSection& section, double learning_rate) {
  return {.muon = learning_rate * optimizer_options(section).muon_rate, .adamw = learning_rate};
}

void require_finite_norm(const parallel::StepReport& report, int64_t step) {
  if (report.not_finite.empty()) return;
  throw Error(ErrorKind::usage,
              "step " + std::to_string(step) + ": the gradient of " + report.not_finite + " is not finite",
              "lower optimizer.learning_rate or lengthen the warm-up; the weights of the step before are untouched");
}

parallel::CheckpointName checkpoint_name() { return {kCheckpointSchema, kCheckpointVersion}; }

}  // namespace pacer::train
