#include "pacer/train/causal_lm.h"

#include <cmath>
#include <fstream>
#include <map>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/base/progress.h"
#include "pacer/base/random.h"
#include "pacer/device/runtime.h"
#include "pacer/nn/tensor_io.h"
#include "pacer/optim/clip.h"
#include "pacer/target/autograd_forward.h"
#include "pacer/text/model_text.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/draft_setup.h"
#include "pacer/train/environment.h"
#include "pacer/train/metrics.h"
#include "pacer/train/optimizer_setup.h"
#include "pacer/train/plan.h"
#include "pacer/train/run_folder.h"
#include "pacer/train/sample_order.h"
#include "pacer/train/schema.h"
#include "pacer/train/text_rows.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 256;

// A model and the names of its weights, f32 masters that are computed with directly.
struct LanguageModel {
  target::ModelConfig config;
  target::WeightMap weights;

  // Sum of -log p(next) over the rows, differentiable.
  at::Tensor loss_sum(const std::vector<std::vector<int64_t>>& rows) const {
    std::vector<std::vector<int64_t>> inputs;
    std::vector<int64_t> next;
    for (const auto& row : rows) {
      inputs.emplace_back(row.begin(), row.end() - 1);
      next.insert(next.end(), row.begin() + 1, row.end());
    }
    const at::Tensor labels = at::empty({static_cast<int64_t>(next.size())}, at::kLong);
    std::copy(next.begin(), next.end(), labels.mutable_data_ptr<int64_t>());
    const at::Tensor logits = target::differentiable_logits(config, weights, target::TokenBatch::packed(inputs));
    return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum);
  }

  void write(const fs::path& folder) const {
    write_file(folder / "config.json", config.to_json().dump(2) + "\n");
    std::vector<formats::NamedTensor> tensors;
    for (const auto& [name, weight] : weights) tensors.push_back({name, nn::view_of(weight.detach())});
    formats::write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
  }
};

target::ModelConfig new_config(const LanguageModelSection& section) {
  target::ModelConfig config;
  config.architecture = "llama";
  config.vocab_size = kBytes;
  config.layers = section.layers, config.hidden_size = section.hidden, config.intermediate_size = section.intermediate;
  config.heads = section.heads, config.kv_heads = section.kv_heads;
  config.head_dim = section.hidden / section.heads;
  config.max_position = section.length;
  return config;
}

// Matrices N(0, 0.02), norms 1; each tensor has a stream of its own.
target::WeightMap new_weights(const target::ModelConfig& config, uint64_t seed) {
  target::WeightMap weights;
  uint64_t index = 0;
  for (const auto& [name, shape] : target::weight_shapes(config)) {
    at::Tensor weight = at::ones(shape, at::kFloat);
    if (!name.ends_with("norm.weight")) {
      const RandomStream random(seed, Purpose::initial_weights, 0, index);
      random.fill_normal(weight.mutable_data_ptr<float>(), static_cast<size_t>(weight.numel()));
      weight.mul_(0.02);
    }
    weights[name] = weight;
    ++index;
  }
  return weights;
}

LanguageModel load_model(const fs::path& path, device::Runtime& runtime) {
  LanguageModel model;
  model.config = read_target_config(path);
  const auto loaded = target::Target::load(path, at::kFloat, runtime);
  for (const auto& [name, shape] : target::weight_shapes(model.config))
    model.weights[name] = loaded->weight(name).clone();
  return model;
}

class CausalTrainer {
 public:
  CausalTrainer(const Recipe& recipe, LanguageModel& model, optim::Optimizer& optimizer, const TextRows& rows,
                const RunPlan& plan, const optim::Schedule& schedule, TrainState state, CheckpointStore& checkpoints,
                MetricsLog& metrics)
      : recipe_(recipe),
        model_(model),
        optimizer_(optimizer),
        rows_(rows),
        plan_(plan),
        schedule_(schedule),
        order_(static_cast<uint64_t>(recipe.seed), static_cast<int64_t>(rows.train.size()), recipe.data.sequences,
               recipe.data.accumulation, plan.end),
        state_(std::move(state)),
        checkpoints_(checkpoints),
        metrics_(metrics) {}

  void run(const std::function<bool()>& stop) {
    Progress progress("train", static_cast<uint64_t>(plan_.steps), {}, static_cast<uint64_t>(state_.step));
    if (state_.step == 0) validate();
    while (state_.step < plan_.steps) {
      train_step(state_.step + 1);
      ++state_.step;
      const bool last = state_.step == plan_.steps, stopping = stop && stop();
      if (last || due(recipe_.logging.every)) record();
      if (last || due(recipe_.validation.every)) validate();
      if (last || stopping || due(recipe_.checkpoint.every)) save();
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

  std::vector<std::vector<int64_t>> take(const std::vector<int64_t>& numbers) const {
    std::vector<std::vector<int64_t>> rows;
    for (const int64_t number : numbers) rows.push_back(rows_.train[static_cast<size_t>(number)]);
    return rows;
  }

  // Everything that can be wrong is checked before the first weight changes.
  void train_step(int64_t step) {
    const Window window = order_.window(step);
    int64_t tokens = 0;
    for (const auto& micro_batch : window.micro_batches) {
      tokens += static_cast<int64_t>(micro_batch.size()) * recipe_.language_model.length;
    }
    optimizer_.clear_gradients();
    double sum = 0;
    for (const auto& micro_batch : window.micro_batches) {
      const at::Tensor loss = model_.loss_sum(take(micro_batch));
      (loss / static_cast<double>(tokens)).backward();
      sum += loss.item<double>();
    }
    const auto gradients = optimizer_.gradients();
    norm_ = optim::global_norm(gradients);
    if (!std::isfinite(norm_)) {
      throw Error(
          ErrorKind::usage,
          "step " + std::to_string(step) + ": the gradient of " + optim::first_not_finite(gradients) + " is not finite",
          "lower optimizer.learning_rate or lengthen the warm-up; the weights of the step before are untouched");
    }
    rate_ = schedule_.at(step);
    optimizer_.step(rate_, optim::clip_coefficient(norm_, recipe_.optimizer.clip));
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
    metrics_.append(entry);
    state_.terms = {};
    state_.terms_steps = 0;
  }

  void validate() {
    if (rows_.validation.empty()) return;
    const at::NoGradGuard no_gradients;
    const auto all = static_cast<int64_t>(rows_.validation.size());
    const int64_t wanted = recipe_.validation.rows > 0 ? std::min(recipe_.validation.rows, all) : all;
    double sum = 0;
    for (int64_t row = 0; row < wanted; row += recipe_.data.sequences) {
      const auto begin = rows_.validation.begin() + row;
      sum += model_.loss_sum({begin, begin + std::min(recipe_.data.sequences, wanted - row)}).item<double>();
    }
    held_out_loss_ = sum / static_cast<double>(wanted * recipe_.language_model.length);
    OrderedJson entry = line("validation");
    entry["loss"] = *held_out_loss_;
    entry["rows"] = wanted;
    entry["wall_s"] = watch_.wall();
    entry["cpu_s"] = watch_.cpu();
    metrics_.append(entry);
  }

  void save() {
    metrics_.sync();
    checkpoints_.save(
        state_, {{"text", rows_.fingerprint}}, [this](const fs::path& folder) { model_.write(folder); }, optimizer_);
    checkpoints_.prune(recipe_.checkpoint.keep_last, 0);
  }

  const Recipe& recipe_;
  LanguageModel& model_;
  optim::Optimizer& optimizer_;
  const TextRows& rows_;
  const RunPlan& plan_;
  optim::Schedule schedule_;
  SampleOrder order_;
  TrainState state_;
  CheckpointStore& checkpoints_;
  MetricsLog& metrics_;
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
  const RunFolder folder(options.run);
  std::optional<RunPlan> earlier;
  if (fs::exists(folder.plan())) earlier = RunPlan::from_json(read_json(folder.plan()), folder.plan().string());
  device::Runtime runtime = device::Runtime::open(recipe.device);
  const int64_t threads = earlier ? earlier->threads : recipe.threads;
  if (threads > 0) runtime.set_threads(static_cast<int>(threads));

  const bool from_weights = section.start == "weights";
  const auto tokenizer = from_weights ? text::ModelText::load(recipe.model.target)->tokenizer() : nullptr;
  const TextRows rows = read_text_rows(*section.text, tokenizer, section.length, section.held_out);

  RunPlan plan;
  plan.threads = runtime.threads();
  plan.rows_together = recipe.data.sequences;
  plan.kernels = kernel_choices();
  plan.recipe = fixed_values(recipe);
  plan.train_rows = rows.fingerprint;
  if (from_weights) plan.target = target_fingerprint(recipe.model.target);
  choose_f32_products(earlier, plan);
  if (earlier) {
    check_continuation(*earlier, plan, folder.path());
    plan = *earlier;
  } else {
    plan_by_count(recipe.schedule,
                  {static_cast<int64_t>(rows.train.size()), recipe.data.sequences * recipe.data.accumulation}, plan);
  }
  const optim::Schedule schedule = make_schedule(recipe, plan);

  CheckpointStore checkpoints(folder.checkpoints());
  const std::optional<fs::path> newest = earlier ? checkpoints.newest() : std::nullopt;
  TrainState state;
  LanguageModel model;
  if (newest) {
    state = load_state(*newest);
    checkpoints.restore(state);
    model = load_model(*newest, runtime);
  } else if (from_weights) {
    model = load_model(recipe.model.target, runtime);
  } else {
    model.config = new_config(section);
    model.weights = new_weights(model.config, static_cast<uint64_t>(recipe.seed));
  }
  int64_t elements = 0;
  for (auto& [name, weight] : model.weights) {
    weight.requires_grad_(true);
    elements += weight.numel();
  }
  optim::Optimizer optimizer(model.weights, optimizer_options(recipe.optimizer));
  if (newest) load_optimizer(*newest, state.step, optimizer);

  if (!earlier) {
    write_file(folder.recipe(), resolved_yaml(resolved));
    write_file(folder.plan(), plan.to_json().dump(2) + "\n");
  }
  write_file(folder.parameters(), route_page(optimizer, recipe.optimizer));
  write_file(folder.environment(), environment(runtime, options.command).dump(2) + "\n");
  log_info(*section.text + ": " + format_count(rows.tokens) + " tokens, " +
           format_count(static_cast<int64_t>(rows.train.size())) + " rows to train on, " +
           format_count(static_cast<int64_t>(rows.validation.size())) + " held out; model with " +
           format_count(elements) + " parameters");
  for (const std::string& text : route_summary(optimizer)) log_info(text);
  log_info("plan: " + plan.how);

  MetricsLog metrics(folder.metrics(), recipe.logging.tensorboard ? folder.tensorboard() : fs::path(),
                     newest ? std::optional<int64_t>(state.step) : std::nullopt);
  CausalTrainer trainer(recipe, model, optimizer, rows, plan, schedule, state, checkpoints, metrics);
  if (state.step < plan.steps) {
    metrics.append({{"kind", "start"}, {"step", state.step}, {"steps", plan.steps}, {"threads", plan.threads}});
    trainer.run(options.stop_requested);
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
  if (state.step < plan.steps) {
    metrics.append({{"kind", "end"},
                    {"step", result.step},
                    {"finished", result.finished},
                    {"wall_s", result.wall_s},
                    {"cpu_s", result.cpu_s}});
  }
  return result;
}

}  // namespace pacer::train
