#include "pacer/train/train.h"

#include <array>
#include <cstdio>
#include <functional>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/data/rows.h"
#include "pacer/device/kernels.h"
#include "pacer/device/runtime.h"
#include "pacer/target/exact_rows.h"
#include "pacer/train/budget.h"
#include "pacer/train/causal_lm.h"
#include "pacer/train/draft_setup.h"
#include "pacer/train/environment.h"
#include "pacer/train/memory.h"
#include "pacer/train/optimizer_setup.h"
#include "pacer/train/ranks.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/row_sets.h"
#include "pacer/train/run_folder.h"
#include "pacer/train/run_start.h"
#include "pacer/train/schema.h"
#include "pacer/train/trainer.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

// What this call would decide if the run began now, without its number of steps.
RunPlan present_plan(const Recipe& recipe, const RowSets& rows, const FeatureMemory& memory,
                     const device::Runtime& runtime) {
  constexpr int64_t kTogether = 8;  // enough that the target's products are efficient, few enough to compute in vain
  RunPlan plan;
  plan.parallel = recipe.parallel.wanted();
  plan.threads = runtime.threads();
  plan.rows_together =
      recipe.features.rows_together > 0 ? recipe.features.rows_together : (memory.train_fits ? kTogether : 1);
  plan.kernels = kernel_choices();
  plan.recipe = fixed_values(recipe);
  plan.train_rows = rows.train_fingerprint;
  plan.validation_rows = rows.validation_fingerprint;
  plan.target = target_fingerprint(recipe.model.target);
  return plan;
}

// Rows of the warm start's measurement: some hundred tokens, always the same ones.
std::vector<int64_t> first_rows(const RowSets& rows, int64_t tokens) {
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < static_cast<int64_t>(rows.train->size()) && tokens > 0; ++i) {
    chosen.push_back(i);
    tokens -= static_cast<int64_t>((*rows.train)[static_cast<size_t>(i)].ids.size());
  }
  return chosen;
}

std::string short_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

// Two ways to train for hours and learn nothing: hardly any rows, or a rate that never arrives.
void warn_of_too_little(int64_t rows, const RunPlan& plan, const optim::Schedule& schedule) {
  constexpr int64_t kFewRows = 100;
  if (rows < kFewRows) {
    log_warning("only " + format_count(rows) + " training rows: a draft learns them by heart and little else; below " +
                format_count(kFewRows) + " treat its figures as those of a trial");
  }
  if (2 * plan.warmup_steps > plan.steps) {
    log_warning("the warm-up takes " + format_count(plan.warmup_steps) + " of " + format_count(plan.steps) +
                " steps: most of the run has less than its learning rate; set schedule.warmup_steps lower");
  }
  log_info("learning rate of the first steps: " + short_number(schedule.at(1)) + ", " +
           short_number(schedule.at(std::min<int64_t>(2, plan.steps))) + ", " +
           short_number(schedule.at(std::min<int64_t>(3, plan.steps))));
}

TrainResult result_of(const RunFolder& folder, const CheckpointStore& checkpoints, const RunPlan& plan,
                      const TrainState& state) {
  TrainResult result;
  result.run = folder.path();
  result.checkpoint = checkpoints.path_of(state.step);
  result.draft = best_draft(folder.path());
  result.step = state.step;
  result.steps = plan.steps;
  result.finished = state.step == plan.steps;
  result.first_loss = state.first_loss;
  result.last_loss = state.last_loss;
  result.validation_tau = state.validation_tau;
  result.best_tau = state.best_tau;
  result.best_step = state.best_step;
  result.rows = state.rows;
  result.tokens = state.tokens;
  result.blocks = state.blocks;
  return result;
}

}  // namespace

TrainResult train(const ResolvedRecipe& resolved, const TrainOptions& options) {
  const Stopwatch watch;
  const Recipe& recipe = resolved.recipe;
  device::use_kernel_paths({device::parse_kernel_path(recipe.kernel_impl, "kernel_impl"),
                            device::parse_kernel_path(recipe.attention_impl, "attention_impl")});
  if (recipe.method == "causal_lm") return train_causal_lm(resolved, options);
  Ranks ranks(recipe.parallel, recipe.device, options.world);
  device::Runtime& runtime = ranks.runtime();
  const RunFolder folder(options.run, ranks.first());
  const std::optional<RunPlan> earlier = earlier_plan(folder, ranks);
  use_threads(earlier, recipe, runtime);

  // What is needed, before anything large is allocated.
  const target::ModelConfig target_config = read_target_config(recipe.model.target);
  const RowSets rows = read_row_sets(recipe, target_config.vocab_size);
  const draft::DraftConfig config = draft_config(recipe, target_config, *rows.train);
  const bool on_host = device::in_host_memory(runtime.device());
  const MemoryEstimate estimate =
      estimate_memory(recipe, target_config, config, *rows.train, *rows.validation, on_host ? runtime.threads() : 1);
  device::MemoryInfo memory_of_rank = runtime.memory();
  if (on_host) memory_of_rank.available_bytes /= static_cast<uint64_t>(ranks.on_this_machine());
  require_memory(on_host ? estimate : estimate.device_part(), memory_of_rank);
  const FeatureMemory memory =
      feature_memory(recipe, target_config, config.target_layer_ids.size(), *rows.train, *rows.validation);
  RunPlan plan = present_plan(recipe, rows, memory, runtime);
  if (parse_dtype(recipe.draft.dtype) == at::kFloat) choose_f32_products(earlier, recipe, ranks, plan);
  if (earlier) {
    check_continuation(*earlier, plan, folder.path());
    plan = *earlier;
  }
  CheckpointStore checkpoints(folder.checkpoints(), ranks.first());
  checkpoints.use_generator_of(runtime);
  const std::optional<fs::path> newest = earlier ? newest_checkpoint(checkpoints, ranks) : std::nullopt;
  TrainState state;
  if (newest) {
    state = load_state(*newest);
    if (ranks.first()) checkpoints.restore(state);
  }
  const auto finish = [&](const TrainState& last) {
    TrainResult result = result_of(folder, checkpoints, plan, last);
    result.coverage = coverage(*rows.train, config.kept_ids);
    result.wall_s = watch.wall();
    result.cpu_s = watch.cpu();
    return result;
  };
  start_generator(newest, recipe, ranks);
  if (newest && state.step == plan.steps) {
    log_info(folder.path().string() + ": finished already, " + format_count(plan.steps) + " steps");
    return finish(state);
  }

  // Target, draft, optimizer, features.
  const std::shared_ptr<const target::Target> target =
      target::Target::load(recipe.model.target, parse_dtype(recipe.model.dtype), runtime);
  const bool decoding = recipe.features.kernels == "decoding";
  if (options.states && !decoding) {
    throw Error(ErrorKind::usage, "features.kernels is " + recipe.features.kernels +
                                      ", states that were computed with the rows need \"decoding\"");
  }
  Workbench bench;
  bench.recipe = recipe;
  bench.loss = loss_options(recipe);
  bench.fingerprints = {{"target", plan.target}, {"train_rows", plan.train_rows}};
  bench.features = std::make_unique<FeatureSource>(target, rows.train, config.target_layer_ids,
                                                   FeatureOptions{plan.rows_together, memory.train, decoding});
  if (!rows.validation->empty()) {
    bench.validation = std::make_unique<FeatureSource>(
        target, rows.validation, config.target_layer_ids,
        FeatureOptions{memory.validation_fits ? plan.rows_together : 1, memory.validation, decoding});
  }
  for (FeatureSource* source : {bench.features.get(), bench.validation.get()}) {
    if (source != nullptr && options.states) source->use_states(options.states);
  }
  const at::ScalarType dtype = parse_dtype(recipe.draft.dtype);
  if (newest) {
    bench.draft = draft::DraftTraining::load(*newest, bench.loss, target, dtype, runtime);
  } else {
    bench.draft =
        draft::DraftTraining::create(config, bench.loss, target, static_cast<uint64_t>(recipe.seed), dtype, runtime);
  }
  std::function<at::Tensor(const at::Tensor&)> log_sums = [draft = bench.draft.get()](const at::Tensor& last) {
    return draft->teacher_log_sums(last);
  };
  if (decoding && bench.draft->wants_log_sums()) {
    log_sums = [target](const at::Tensor& last) { return target::exact_log_sums(*target, last); };
  }
  for (FeatureSource* source : {bench.features.get(), bench.validation.get()}) {
    if (source != nullptr && bench.draft->wants_log_sums()) source->use_log_sums(log_sums);
  }
  if (!newest) {
    constexpr int64_t kWarmStartTokens = 512;
    if (recipe.draft.warm_start) bench.draft->warm_start(bench.features->batch(first_rows(rows, kWarmStartTokens)));
  }
  const std::vector<optim::RoutedParameter> routed =
      routed_parameters(bench.draft->parameters(), optimizer_options(recipe.optimizer));
  if (ranks.parallel()) {
    bench.together = std::make_unique<ParallelDraft>(bench.recipe, bench.loss, ranks, *bench.draft);
    if (newest) bench.together->load(*newest);
  } else {
    bench.optimizer =
        std::make_unique<optim::Optimizer>(bench.draft->parameters(), optimizer_options(recipe.optimizer));
    if (newest) load_optimizer(*newest, state.step, *bench.optimizer);
  }

  // The plan is made once and kept.
  const DataSize size{bench.features->rows(), recipe.data.sequences * recipe.data.accumulation * ranks.data_size(),
                      ranks.data_size()};
  if (!earlier) {
    if (recipe.schedule.time_budget_s) {
      plan_by_budget(recipe, size, measure(bench, ranks, memory.train_fits, checkpoints, watch), plan);
    } else {
      plan_by_count(recipe.schedule, size, plan);
    }
  }
  const optim::Schedule schedule = make_schedule(recipe, plan);
  write_run_files(folder, ranks,
                  {.recipe = resolved_yaml(resolved),
                   .plan = earlier ? std::nullopt : std::optional<RunPlan>(plan),
                   .parameters = route_page(routed, recipe.optimizer),
                   .environment = environment(runtime, options.command)});
  for (const std::string& line : route_summary(routed)) log_info(line);
  log_info("plan: " + plan.how + "; warm-up " + format_count(plan.warmup_steps) + " steps, learning rate " +
           short_number(schedule.at(1)) + " to " + short_number(schedule.peak) + " to " +
           short_number(schedule.at(plan.steps)));
  if (ranks.first()) warn_of_too_little(size.rows, plan, schedule);
  if (newest) log_info("continuing after step " + format_count(state.step) + " from " + newest->string());

  const std::unique_ptr<MetricsLog> metrics =
      open_metrics(folder, ranks, recipe, newest ? std::optional<int64_t>(state.step) : std::nullopt);
  if (metrics != nullptr) {
    metrics->append({{"kind", "start"},
                     {"step", state.step},
                     {"steps", plan.steps},
                     {"rows", size.rows},
                     {"validation_rows", static_cast<int64_t>(rows.validation->size())},
                     {"coverage", coverage(*rows.train, config.kept_ids)},
                     {"threads", plan.threads}});
  }
  bench.features->use_pinned_memory(runtime);
  Trainer trainer(
      runtime, bench, ranks, plan, schedule, state, checkpoints, metrics.get(),
      options.stop_requested ? options.stop_requested : [] { return false; });
  ranks.set_up();
  explaining_failures(ranks, estimate, [&] { trainer.run(); });
  ranks.any(false, "the end");  // what the others return names files that rank 0 has written
  const TrainResult result = finish(trainer.state());
  if (metrics != nullptr) {
    metrics->append({{"kind", "end"},
                     {"step", result.step},
                     {"finished", result.finished},
                     {"wall_s", result.wall_s},
                     {"cpu_s", result.cpu_s}});
  }
  return result;
}

ResolvedRecipe recipe_of_run(const fs::path& run) {
  const fs::path file = run / "recipe.yaml";
  if (!fs::exists(file)) {
    throw Error(ErrorKind::usage, run.string() + ": no run has begun in this folder",
                "give a recipe with -c to begin one");
  }
  return read_recipe(file);
}

OrderedJson TrainResult::to_json() const {
  const auto or_null = [](const std::optional<double>& value) { return value ? OrderedJson(*value) : OrderedJson(); };
  return {{"run", run.string()},
          {"checkpoint", checkpoint.string()},
          {"draft", draft.string()},
          {"step", step},
          {"steps", steps},
          {"finished", finished},
          {"first_loss", or_null(first_loss)},
          {"last_loss", or_null(last_loss)},
          {"validation_loss", or_null(validation_loss)},
          {"validation_tau", or_null(validation_tau)},
          {"best_tau", or_null(best_tau)},
          {"best_step", best_step},
          {"rows", rows},
          {"tokens", tokens},
          {"blocks", blocks},
          {"coverage", coverage},
          {"wall_s", wall_s},
          {"cpu_s", cpu_s}};
}

}  // namespace pacer::train
