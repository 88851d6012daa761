#include "pacer/train/trainer.h"

#include <cmath>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/base/progress.h"
#include "pacer/optim/clip.h"
#include "pacer/train/window_loss.h"

namespace pacer::train {
namespace {

bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

std::string note_of(const TrainState& state) {
  std::string note;
  if (state.last_loss) note = "loss " + format_fixed(*state.last_loss, 3);
  if (state.validation_tau) note += (note.empty() ? "tau " : ", tau ") + format_fixed(*state.validation_tau, 2);
  return note;
}

}  // namespace

BatchFeed::PlanOf Workbench::plan_of(const SampleOrder& order) const {
  return [this, order](int64_t step) {
    return together ? together->plan(*features, order.window(step), step)
                    : plan_window(*draft, *features, order.window(step), step, recipe, loss);
  };
}

Trainer::Trainer(const device::Runtime& runtime, Workbench& bench, Ranks& ranks, const RunPlan& plan,
                 const optim::Schedule& schedule, TrainState state, CheckpointStore& checkpoints, MetricsLog* metrics,
                 std::function<bool()> stop)
    : runtime_(runtime),
      bench_(bench),
      ranks_(ranks),
      plan_(plan),
      schedule_(schedule),
      order_(static_cast<uint64_t>(bench.recipe.seed), bench.features->rows(), bench.recipe.data.sequences,
             bench.recipe.data.accumulation * ranks.data_size(), plan.end),
      state_(std::move(state)),
      checkpoints_(checkpoints),
      metrics_(metrics),
      stop_(std::move(stop)) {}

void Trainer::run() {
  const Recipe& recipe = bench_.recipe;
  Progress progress("train", static_cast<uint64_t>(plan_.steps), {}, static_cast<uint64_t>(state_.step));
  if (state_.step == 0) validate();  // where the curve of tau begins

  BatchFeed feed(runtime_, *bench_.features, bench_.plan_of(order_), state_.step + 1, plan_.steps);
  while (state_.step < plan_.steps) {
    const int64_t rows_before = state_.rows;
    const Update update = train_step(feed);
    ++state_.step;
    const int64_t epoch = order_.epoch_ended(rows_before, state_.rows, recipe.checkpoint.epochs);
    const bool last = state_.step == plan_.steps, stopping = ranks_.any(stop_(), "whether to stop");

    if (last || due(state_.step, recipe.logging.every)) record(update);
    const bool best = (last || due(state_.step, recipe.validation.every)) && validate();
    if (last || stopping || epoch > 0 || due(state_.step, recipe.checkpoint.every) ||
        (best && recipe.checkpoint.keep_best)) {
      save(epoch);
    }

    progress.update(static_cast<uint64_t>(state_.step), note_of(state_));
    if (stopping && !last) return;
  }
  progress.finish(note_of(state_));
}

// One optimizer step. Everything that can be wrong is checked before the first weight changes.
Trainer::Update Trainer::train_step(BatchFeed& feed) {
  const WindowPlan& plan = feed.next_window();
  const BatchOf batch_of = [&](size_t i) { return feed.batch(i); };
  draft::LossTerms terms;
  const Update update = bench_.together ? together(plan, batch_of, terms) : alone(plan, batch_of, terms);
  target_cpu_s_ = feed.target_cpu_s();

  const Window& window = plan.window;
  state_.terms.add(terms);
  ++state_.terms_steps;
  state_.rows += window.end - window.begin;
  state_.blocks += terms.blocks;
  for (const auto& rows : window.micro_batches) state_.tokens += bench_.features->tokens(rows).starts.back();
  return update;
}

Trainer::Update Trainer::together(const WindowPlan& plan, const BatchOf& batch_of, draft::LossTerms& terms) {
  const double learning_rate = schedule_.at(plan.step);
  const ParallelDraft::Update update = bench_.together->step(plan, batch_of, learning_rate);
  terms = update.terms;
  return {learning_rate, update.gradient_norm, update.clip};
}

Trainer::Update Trainer::alone(const WindowPlan& plan, const BatchOf& batch_of, draft::LossTerms& terms) {
  optim::Optimizer& optimizer = *bench_.optimizer;
  optimizer.clear_gradients();
  terms = window_gradients(*bench_.draft, plan, batch_of);

  const auto gradients = optimizer.gradients();
  Update update{};
  update.gradient_norm = optim::global_norm(gradients);
  if (!std::isfinite(update.gradient_norm)) {
    throw Error(ErrorKind::usage,
                "step " + std::to_string(plan.step) + ": the gradient of " + optim::first_not_finite(gradients) +
                    " is not finite",
                "lower optimizer.learning_rate or lengthen the warm-up; the weights of the step before are untouched");
  }
  update.clip = optim::clip_coefficient(update.gradient_norm, bench_.recipe.optimizer.clip);
  update.learning_rate = schedule_.at(plan.step);

  optimizer.step(update.learning_rate, update.clip);
  bench_.draft->refresh();
  return update;
}

void Trainer::record(const Update& update) {
  const OrderedJson metrics = metrics_of(state_.terms, bench_.loss);
  state_.last_loss = metrics.at("loss").get<double>();
  if (!state_.first_loss) state_.first_loss = state_.last_loss;

  OrderedJson line = {{"kind", "train"}, {"step", state_.step}, {"epoch", order_.epochs(state_.rows)}};
  line.update(metrics);
  line["learning_rate"] = update.learning_rate;
  line["gradient_norm"] = update.gradient_norm;
  line["clip"] = update.clip;
  line["steps"] = state_.terms_steps;
  line["wall_s"] = watch_.wall();
  line["cpu_s"] = watch_.cpu();
  line["target_cpu_s"] = target_cpu_s_;
  if (metrics_ != nullptr) metrics_->append(line);
  state_.terms = {};
  state_.terms_steps = 0;
}

bool Trainer::validate() {
  if (bench_.validation == nullptr) return false;
  const int64_t limit = bench_.recipe.validation.rows;
  const draft::LossTerms terms = bench_.together ? bench_.together->evaluate(*bench_.validation, limit)
                                                 : evaluate(*bench_.draft, *bench_.validation, limit, bench_.recipe);
  OrderedJson line = {{"kind", "validation"}, {"step", state_.step}, {"epoch", order_.epochs(state_.rows)}};
  line.update(metrics_of(terms, bench_.loss));
  line["wall_s"] = watch_.wall();
  line["cpu_s"] = watch_.cpu();
  if (metrics_ != nullptr) metrics_->append(line);
  state_.validation_tau = line.at("tau").get<double>();
  if (state_.step == 0) return false;  // an untrained draft is no candidate
  const bool best = !state_.best_tau || *state_.validation_tau > *state_.best_tau;
  if (best) {
    state_.best_tau = state_.validation_tau;
    state_.best_step = state_.step;
  }
  return best;
}

void Trainer::save(int64_t epoch) {
  const CheckpointSection& section = bench_.recipe.checkpoint;
  if (metrics_ != nullptr) metrics_->sync();  // before the checkpoint: what it continues from must be there
  if (bench_.together) {
    bench_.together->save(checkpoints_.path_of(state_.step), state_, bench_.fingerprints);
    if (!ranks_.first()) return;
    checkpoints_.mark_latest(state_.step);
  } else {
    checkpoints_.save(state_, bench_.fingerprints, *bench_.draft, *bench_.optimizer);
  }
  if (epoch > 0) checkpoints_.mark_epoch(epoch, state_.step);
  const bool best = section.keep_best && state_.best_step > 0;
  if (best && state_.best_step == state_.step) checkpoints_.mark_best(state_.step);
  checkpoints_.prune(section.keep_last, best ? state_.best_step : 0);
}

}  // namespace pacer::train
