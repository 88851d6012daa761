#include "pacer/train/parallel_language_model.h"

#include <cmath>
#include <numeric>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/head_loss.h"

namespace pacer::train {
namespace {

// Each segment is called once, in its place.
std::vector<size_t> calls_of(const target::ModelConfig& config) {
  std::vector<size_t> calls(static_cast<size_t>(config.layers) + 2);
  std::iota(calls.begin(), calls.end(), size_t{0});
  return calls;
}

}  // namespace

ParallelLanguageModel::ParallelLanguageModel(const Recipe& recipe, Ranks& ranks, LanguageModel& model)
    : recipe_(recipe),
      ranks_(ranks),
      model_(model),
      pieces_(model.config, model.weights),
      engine_(make_engine(recipe, ranks, model.weights, segments(), calls_of(model.config))) {}

std::vector<parallel::Segment> ParallelLanguageModel::segments() {
  const auto places = pieces_.parameters_by_place();
  std::vector<parallel::Segment> segments;
  segments.push_back({"embedding", places.front(), [this](const parallel::Tensors&) -> parallel::Tensors {
                        return {pieces_.embed(batch_->inputs)};
                      }});
  for (int64_t i = 0; i < model_.config.layers; ++i) {
    segments.push_back({"layer " + std::to_string(i), places[static_cast<size_t>(i) + 1],
                        [this, i](const parallel::Tensors& in) -> parallel::Tensors {
                          return {pieces_.layer(i, in[0], batch_->inputs, turns_)};
                        }});
  }
  segments.push_back({"head", places.back(), [this](const parallel::Tensors& in) -> parallel::Tensors {
                        return {head_loss(pieces_.normed(in[0]), pieces_.head(), batch_->labels)};
                      }});
  return segments;
}

ParallelLanguageModel::Update ParallelLanguageModel::step(const TokenRows& rows, const Window& window, int64_t step,
                                                          double learning_rate) {
  const int64_t own = recipe_.data.accumulation, first = ranks_.data_rank() * own;
  for (int64_t k = 0; k < own; ++k) {
    if (first + k >= static_cast<int64_t>(window.micro_batches.size())) {
      engine_->skip_micro_batch();
      continue;
    }
    TokenRows taken;
    for (const int64_t row : window.micro_batches[static_cast<size_t>(first + k)]) {
      taken.push_back(rows[static_cast<size_t>(row)]);
    }
    batch_.emplace(taken);
    turns_ = pieces_.rope_rows(batch_->inputs);
    parallel::Tensors values;
    for (const size_t call : calls_of(model_.config)) values = engine_->run(call, values);
    engine_->backward(values[0], batch_->labels.numel());
  }
  const parallel::StepReport report = engine_->step(step_rates(recipe_.optimizer, learning_rate));
  require_finite_norm(report, step);
  if (!std::isfinite(report.loss)) {
    throw Error(ErrorKind::usage, "step " + std::to_string(step) + ": the loss is not finite",
                "the model diverged: lower optimizer.learning_rate or lengthen the warm-up, and begin a new run");
  }
  return {report.loss * static_cast<double>(report.count), report.count, report.norm.item<double>()};
}

double ParallelLanguageModel::evaluate(const TokenRows& rows, int64_t count) {
  const at::NoGradGuard no_gradients;
  const LanguageModel whole{model_.config, engine_->weights()};
  const int64_t batch = recipe_.data.sequences, batches = (count + batch - 1) / batch;
  at::Tensor sums = at::zeros({batches}, at::kDouble);
  for (int64_t i = ranks_.data_rank(); i < batches; i += ranks_.data_size()) {
    const auto begin = rows.begin() + i * batch;
    sums[i] = whole.loss_sum({begin, begin + std::min(batch, count - i * batch)}).item<double>();
  }
  ranks_.sum(sums, "validation");
  const double* values = sums.const_data_ptr<double>();
  return std::accumulate(values, values + batches, 0.0);
}

void ParallelLanguageModel::save(const std::filesystem::path& folder, const TrainState& state,
                                 const std::map<std::string, std::string>& fingerprints) {
  parallel::CheckpointExtras extras;
  extras.name = checkpoint_name();
  extras.write = [&](const std::filesystem::path& unnamed) {
    write_file(unnamed / "config.json", model_.config.to_json().dump(2) + "\n");
    write_file(unnamed / "state.json", state.to_json().dump(2) + "\n");
  };
  extras.write_each = [this](const std::filesystem::path& unnamed) {
    save_generator(unnamed, ranks_.runtime(), ranks_.rank(), ranks_.world().size());
  };
  extras.fingerprints = fingerprints;
  extras.details = {{"step", state.step}};
  extras.replace = true;  // a folder of this step is damaged, or of a run that goes on from an older one
  parallel::save_checkpoint(*engine_, folder, extras);
}

void ParallelLanguageModel::load(const std::filesystem::path& folder) {
  parallel::load_checkpoint(*engine_, folder, checkpoint_name());
}

}  // namespace pacer::train
