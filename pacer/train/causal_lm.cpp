#include "pacer/train/causal_lm.h"

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/base/progress.h"
#include "pacer/device/runtime.h"
#include "pacer/optim/clip.h"
#include "pacer/text/model_text.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/draft_setup.h"
#include "pacer/train/environment.h"
#include "pacer/train/language_model.h"
#include "pacer/train/memory.h"
#include "pacer/train/metrics.h"
#include "pacer/train/optimizer_setup.h"
#include "pacer/train/parallel_language_model.h"
#include "pacer/train/plan.h"
#include "pacer/train/ranks.h"
#include "pacer/train/run_folder.h"
#include "pacer/train/run_start.h"
#include "pacer/train/sample_order.h"
#include "pacer/train/schema.h"
#include "pacer/train/text_rows.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

class CausalTrainer {
 public:
  // optimizer: of one process alone; together: of ranks. One of them is null. metrics: null on ranks that do not write.
  CausalTrainer(const Recipe& recipe, Ranks& ranks, LanguageModel& model, optim::Optimizer* optimizer,
                ParallelLanguageModel* together, const TextRows& rows, const RunPlan& plan,
                const optim::Schedule& schedule, TrainState state, CheckpointStore& checkpoints, MetricsLog* metrics)
      : recipe_(recipe),
        ranks_(ranks),
        model_(model),
        optimizer_(optimizer),
        together_(together),
        rows_(rows),
        plan_(plan),
        schedule_(schedule),
        order_(static_cast<uint64_t>(recipe.seed), static_cast<int64_t>(rows.train.size()), recipe.data.sequences,
               recipe.data.accumulation * ranks.data_size(), plan.end),
        state_(std::move(state)),
        checkpoints_(checkpoints),
        metrics_(metrics) {}

  void run(const std::function<bool()>& stop) {
    Progress progress("train", static_cast<uint64_t>(plan_.steps), {}, static_cast<uint64_t>(state_.step));
    if (state_.step == 0) validate();
    while (state_.step < plan_.steps) {
      const int64_t rows_before = state_.rows;
      train_step(state_.step + 1);
      ++state_.step;
      const int64_t epoch = order_.epoch_ended(rows_before, state_.rows, recipe_.checkpoint.epochs);
      const bool last = state_.step == plan_.steps, stopping = ranks_.any(stop && stop(), "whether to stop");
      if (last || due(recipe_.logging.every)) record();
      if (last || due(recipe_.validation.every)) validate();
      if (last || stopping || epoch > 0 || due(recipe_.checkpoint.every)) save(epoch);
      progress.update(static_cast<uint64_t>(state_.step), note());
      if (stopping && !last) return;
    }
    progress.finish(note());
  }

  const TrainState& state() const { return state_; }
  std::optional<double> held_out_loss() const { return held_out_loss_; }

 private:
  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  std::string note() const { return state_.last_loss ? "loss " + format_fixed(*state_.last_loss, 3) : std::string(); }

  TokenRows take(const std::vector<int64_t>& numbers) const {
    TokenRows rows;
    for (const int64_t number : numbers) rows.push_back(rows_.train[static_cast<size_t>(number)]);
    return rows;
  }

  // Everything that can be wrong is checked before the first weight changes.
  void train_step(int64_t step) {
    const Window window = order_.window(step);
    rate_ = schedule_.at(step);
    if (together_ != nullptr) {
      const ParallelLanguageModel::Update update = together_->step(rows_.train, window, step, rate_);
      norm_ = update.gradient_norm;
      return count(window, update.loss_sum, update.tokens);
    }
    int64_t tokens = 0;
    for (const auto& micro_batch : window.micro_batches) {
      tokens += static_cast<int64_t>(micro_batch.size()) * recipe_.language_model.length;
    }
    optimizer_->clear_gradients();
    double sum = 0;
    for (const auto& micro_batch : window.micro_batches) {
      const at::Tensor loss = model_.loss_sum(take(micro_batch));
      (loss / static_cast<double>(tokens)).backward();
      sum += loss.item<double>();
    }
    const auto gradients = optimizer_->gradients();
    norm_ = optim::global_norm(gradients);
    if (!std::isfinite(norm_)) {
      throw Error(
          ErrorKind::usage,
          "step " + std::to_string(step) + ": the gradient of " + optim::first_not_finite(gradients) + " is not finite",
          "lower optimizer.learning_rate or lengthen the warm-up; the weights of the step before are untouched");
    }
    optimizer_->step(rate_, optim::clip_coefficient(norm_, recipe_.optimizer.clip));
    count(window, sum, tokens);
  }

  void count(const Window& window, double sum, int64_t tokens) {
    state_.terms.ce_sum += sum;
    state_.terms.ce_weight += static_cast<double>(tokens);
    ++state_.terms_steps;
    state_.rows += window.end - window.begin;
    state_.tokens += tokens;
  }

  OrderedJson line(const std::string& kind) const {
    return {{"kind", kind}, {"step", state_.step}, {"epoch", order_.epochs(state_.rows)}};
  }

  void record() {
    state_.last_loss = state_.terms.ce_sum / state_.terms.ce_weight;
    if (!state_.first_loss) state_.first_loss = state_.last_loss;
    OrderedJson entry = line("train");
    entry["loss"] = *state_.last_loss;
    entry["learning_rate"] = rate_;
    entry["gradient_norm"] = norm_;
    entry["steps"] = state_.terms_steps;
    entry["wall_s"] = watch_.wall();
    entry["cpu_s"] = watch_.cpu();
    if (metrics_ != nullptr) metrics_->append(entry);
    state_.terms = {};
    state_.terms_steps = 0;
  }

  double held_out_sum(int64_t wanted) const {
    const at::NoGradGuard no_gradients;
    double sum = 0;
    for (int64_t row = 0; row < wanted; row += recipe_.data.sequences) {
      const auto begin = rows_.validation.begin() + row;
      sum += model_.loss_sum({begin, begin + std::min(recipe_.data.sequences, wanted - row)}).item<double>();
    }
    return sum;
  }

  void validate() {
    if (rows_.validation.empty()) return;
    const auto all = static_cast<int64_t>(rows_.validation.size());
    const int64_t wanted = recipe_.validation.rows > 0 ? std::min(recipe_.validation.rows, all) : all;
    const double sum = together_ != nullptr ? together_->evaluate(rows_.validation, wanted) : held_out_sum(wanted);
    held_out_loss_ = sum / static_cast<double>(wanted * recipe_.language_model.length);
    OrderedJson entry = line("validation");
    entry["loss"] = *held_out_loss_;
    entry["rows"] = wanted;
    entry["wall_s"] = watch_.wall();
    entry["cpu_s"] = watch_.cpu();
    if (metrics_ != nullptr) metrics_->append(entry);
  }

  void save(int64_t epoch) {
    if (metrics_ != nullptr) metrics_->sync();
    const std::map<std::string, std::string> fingerprints = {{"text", rows_.fingerprint}};
    if (together_ != nullptr) {
      together_->save(checkpoints_.path_of(state_.step), state_, fingerprints);
      if (!ranks_.first()) return;
      checkpoints_.mark_latest(state_.step);
    } else {
      checkpoints_.save(state_, fingerprints, [this](const fs::path& folder) { model_.write(folder); }, *optimizer_);
    }
    if (epoch > 0) checkpoints_.mark_epoch(epoch, state_.step);
    checkpoints_.prune(recipe_.checkpoint.keep_last, 0);
  }

  const Recipe& recipe_;
  Ranks& ranks_;
  LanguageModel& model_;
  optim::Optimizer* optimizer_;
  ParallelLanguageModel* together_;
  const TextRows& rows_;
  const RunPlan& plan_;
  optim::Schedule schedule_;
  SampleOrder order_;
  TrainState state_;
  CheckpointStore& checkpoints_;
  MetricsLog* metrics_;
  Stopwatch watch_;
  double norm_ = 0, rate_ = 0;
  std::optional<double> held_out_loss_;
};

// The newest line of the run that has a held-out loss: a run that has nothing left to do says it, too.
std::optional<double> held_out_of(const fs::path& metrics) {
  std::optional<double> loss;
  std::ifstream in(metrics);
  for (std::string text; std::getline(in, text);) {
    const Json record = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (record.is_object() && record.value("kind", "") == "validation") loss = record.at("loss").get<double>();
  }
  return loss;
}

}  // namespace

TrainResult train_causal_lm(const ResolvedRecipe& resolved, const TrainOptions& options) {
  const Stopwatch watch;
  const Recipe& recipe = resolved.recipe;
  const LanguageModelSection& section = recipe.language_model;
  Ranks ranks(recipe.parallel, recipe.device, options.world);
  device::Runtime& runtime = ranks.runtime();
  const RunFolder folder(options.run, ranks.first());
  const std::optional<RunPlan> earlier = earlier_plan(folder, ranks);
  use_threads(earlier, recipe, runtime);

  const bool from_weights = section.start == "weights";
  const auto tokenizer = from_weights ? text::ModelText::load(recipe.model.target)->tokenizer() : nullptr;
  const TextRows rows = read_text_rows(*section.text, tokenizer, section.length, section.held_out);

  RunPlan plan;
  plan.parallel = recipe.parallel.wanted();
  plan.threads = runtime.threads();
  plan.rows_together = recipe.data.sequences;
  plan.kernels = kernel_choices();
  plan.recipe = fixed_values(recipe);
  plan.train_rows = rows.fingerprint;
  if (from_weights) plan.target = target_fingerprint(recipe.model.target);
  choose_f32_products(earlier, recipe, ranks, plan);
  if (earlier) {
    check_continuation(*earlier, plan, folder.path());
    plan = *earlier;
  } else {
    plan_by_count(
        recipe.schedule,
        {static_cast<int64_t>(rows.train.size()), recipe.data.sequences * recipe.data.accumulation * ranks.data_size()},
        plan);
  }
  const optim::Schedule schedule = make_schedule(recipe, plan);

  CheckpointStore checkpoints(folder.checkpoints(), ranks.first());
  checkpoints.use_generator_of(runtime);
  const std::optional<fs::path> newest = earlier ? newest_checkpoint(checkpoints, ranks) : std::nullopt;
  TrainState state;
  LanguageModel model;
  if (newest) {
    state = load_state(*newest);
    if (ranks.first()) checkpoints.restore(state);
    model = load_language_model(*newest, runtime);
  } else if (from_weights) {
    model = load_language_model(recipe.model.target, runtime);
  } else {
    model = new_language_model(section, static_cast<uint64_t>(recipe.seed), runtime);
  }
  start_generator(newest, recipe, ranks);
  int64_t elements = 0;
  for (auto& [name, weight] : model.weights) {
    weight.requires_grad_(true);
    elements += weight.numel();
  }
  const MemoryEstimate memory = estimate_language_model(recipe, model.config);
  const optim::OptimizerOptions settings = optimizer_options(recipe.optimizer);
  const std::vector<optim::RoutedParameter> routed = routed_parameters(model.weights, settings);
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<ParallelLanguageModel> together;
  if (ranks.parallel()) {
    together = std::make_unique<ParallelLanguageModel>(recipe, ranks, model);
    if (newest) together->load(*newest);
  } else {
    optimizer = std::make_unique<optim::Optimizer>(model.weights, settings);
    if (newest) load_optimizer(*newest, state.step, *optimizer);
  }

  write_run_files(folder, ranks,
                  {.recipe = resolved_yaml(resolved),
                   .plan = earlier ? std::nullopt : std::optional<RunPlan>(plan),
                   .parameters = route_page(routed, recipe.optimizer),
                   .environment = environment(runtime, options.command)});
  log_info(*section.text + ": " + format_count(rows.tokens) + " tokens, " +
           format_count(static_cast<int64_t>(rows.train.size())) + " rows to train on, " +
           format_count(static_cast<int64_t>(rows.validation.size())) + " held out; model with " +
           format_count(elements) + " parameters");
  for (const std::string& text : route_summary(routed)) log_info(text);
  log_info("plan: " + plan.how);

  const std::unique_ptr<MetricsLog> metrics =
      open_metrics(folder, ranks, recipe, newest ? std::optional<int64_t>(state.step) : std::nullopt);
  ranks.set_up();
  CausalTrainer trainer(recipe, ranks, model, optimizer.get(), together.get(), rows, plan, schedule, state, checkpoints,
                        metrics.get());
  if (state.step < plan.steps) {
    if (metrics != nullptr) {
      metrics->append({{"kind", "start"}, {"step", state.step}, {"steps", plan.steps}, {"threads", plan.threads}});
    }
    explaining_failures(ranks, memory, [&] { trainer.run(options.stop_requested); });
    ranks.any(false, "the end");  // what the others return names files that rank 0 has written
  }

  TrainResult result;
  result.run = folder.path();
  result.step = trainer.state().step;
  result.steps = plan.steps;
  result.finished = result.step == result.steps;
  result.checkpoint = result.draft = checkpoints.path_of(result.step);
  result.first_loss = trainer.state().first_loss;
  result.last_loss = trainer.state().last_loss;
  result.validation_loss = trainer.held_out_loss() ? trainer.held_out_loss() : held_out_of(folder.metrics());
  result.rows = trainer.state().rows;
  result.tokens = trainer.state().tokens;
  result.wall_s = watch.wall();
  result.cpu_s = watch.cpu();
  if (state.step < plan.steps && metrics != nullptr) {
    metrics->append({{"kind", "end"},
                     {"step", result.step},
                     {"finished", result.finished},
                     {"wall_s", result.wall_s},
                     {"cpu_s", result.cpu_s}});
  }
  return result;
}

}  // namespace pacer::train
