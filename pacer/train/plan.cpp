#include "pacer/train/plan.h"

#include <algorithm>
#include <cmath>

#include <ATen/Version.h>
#include <torch/version.h>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/nn/linear.h"
#include "pacer/nn/row_kernels.h"
#include "pacer/train/schema.h"

namespace pacer::train {
namespace {

constexpr int kVersion = 1;

int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

double expected_seconds(const Recipe& recipe, const DataSize& data, const Measured& m, int64_t steps) {
  const auto n = static_cast<double>(steps);
  const double rows = n * static_cast<double>(data.rows_per_step) / static_cast<double>(data.ranks);
  double computed = rows;  // rows whose features are computed
  if (m.kept) {
    const auto groups = static_cast<double>(m.groups);
    const double touched = groups * (1.0 - std::pow(1.0 - 1.0 / groups, rows));
    computed = std::max(0.0, touched - static_cast<double>(m.groups_done)) * static_cast<double>(data.rows) / groups;
  }
  const auto times = [&](int64_t every) { return every > 0 ? n / static_cast<double>(every) + 1.0 : 1.0; };
  return m.spent + n * m.step + computed * m.row + times(recipe.validation.every) * m.validation +
         times(recipe.checkpoint.every) * m.checkpoint;
}

template <typename T>
void take(const Json& json, const std::string& place, const char* name, T& value) {
  const auto found = json.find(name);
  if (found == json.end()) {
    throw Error(ErrorKind::format, place + ": '" + name + "' is missing", "this file was not written by this program");
  }
  try {
    found->get_to(value);
  } catch (const Json::exception&) {
    throw Error(ErrorKind::format, place + ": '" + name + "' is " + found->dump() + ", which is of another type",
                "this file was not written by this program");
  }
}

}  // namespace

Json RunPlan::to_json() const {
  Json json{{"schema", "pacer-plan"},
            {"version", kVersion},
            {"steps", steps},
            {"warmup_steps", warmup_steps},
            {"end", end},
            {"how", how},
            {"threads", threads},
            {"rows_together", rows_together},
            {"kernels", kernels},
            {"recipe", recipe},
            {"train_rows", train_rows},
            {"validation_rows", validation_rows},
            {"target", target},
            {"measured", measured}};
  if (parallel) json["parallel"] = true;
  return json;
}

RunPlan RunPlan::from_json(const Json& json, const std::string& place) {
  if (!json.is_object() || json.value("schema", "") != "pacer-plan" || json.value("version", 0) != kVersion) {
    throw Error(ErrorKind::format, place + ": not a plan of version " + std::to_string(kVersion),
                "was the run made by another version of Pacer? Start it anew in another folder");
  }
  RunPlan plan;
  take(json, place, "steps", plan.steps);
  take(json, place, "warmup_steps", plan.warmup_steps);
  take(json, place, "end", plan.end);
  take(json, place, "how", plan.how);
  if (json.contains("parallel")) take(json, place, "parallel", plan.parallel);
  take(json, place, "threads", plan.threads);
  take(json, place, "rows_together", plan.rows_together);
  take(json, place, "kernels", plan.kernels);
  take(json, place, "recipe", plan.recipe);
  take(json, place, "train_rows", plan.train_rows);
  take(json, place, "validation_rows", plan.validation_rows);
  take(json, place, "target", plan.target);
  take(json, place, "measured", plan.measured);
  return plan;
}

Json Measured::to_json() const {
  return {{"spent_s", spent},
          {"step_s", step},
          {"row_s", row},
          {"validation_s", validation},
          {"checkpoint_s", checkpoint},
          {"groups", groups},
          {"groups_done", groups_done},
          {"kept", kept}};
}

Measured Measured::from_json(const Json& json, const std::string& place) {
  Measured measured;
  take(json, place, "spent_s", measured.spent);
  take(json, place, "step_s", measured.step);
  take(json, place, "row_s", measured.row);
  take(json, place, "validation_s", measured.validation);
  take(json, place, "checkpoint_s", measured.checkpoint);
  take(json, place, "groups", measured.groups);
  take(json, place, "groups_done", measured.groups_done);
  take(json, place, "kept", measured.kept);
  return measured;
}

void plan_by_count(const ScheduleSection& schedule, const DataSize& data, RunPlan& plan) {
  const std::string per_step =
      format_count(data.rows_per_step) + (data.rows_per_step == 1 ? " row" : " rows") + " a step";
  if (schedule.steps) {
    plan.steps = *schedule.steps;
    plan.end = plan.steps * data.rows_per_step;
    plan.how = format_count(plan.steps) + " steps, " + per_step;
    return;
  }
  // A last step with fewer rows is as good as any other, because losses are divided by what was really there.
  plan.end = std::max<int64_t>(1, std::llround(schedule.epochs.value() * static_cast<double>(data.rows)));
  plan.steps = ceiling(plan.end, data.rows_per_step);
  Json epochs = schedule.epochs.value();
  plan.how = epochs.dump() + " epochs of " + format_count(data.rows) + " rows, " + per_step;
}

void plan_by_budget(const Recipe& recipe, const DataSize& data, const Measured& measured, RunPlan& plan) {
  const double budget = recipe.schedule.time_budget_s.value();
  const auto fits = [&](int64_t steps) { return expected_seconds(recipe, data, measured, steps) <= budget; };
  if (!fits(1)) {
    throw Error(ErrorKind::usage,
                "schedule.time_budget_s is " + format_duration(budget) + "; loading, measuring and one step take " +
                    format_duration(expected_seconds(recipe, data, measured, 1)) + " here",
                "give it more time, or validate and save less often");
  }
  int64_t least = 1, most = 2;
  while (most < (int64_t{1} << 40) && fits(most)) least = most, most *= 2;
  while (most - least > 1) {
    const int64_t middle = least + (most - least) / 2;
    (fits(middle) ? least : most) = middle;
  }
  plan.steps = least;
  plan.end = plan.steps * data.rows_per_step;
  plan.measured = measured.to_json();
  plan.how = format_count(plan.steps) + " steps, which should fit in " + format_duration(budget) + " (" +
             recipe.schedule.budget_clock + " time) at " + format_duration(measured.step) + " a step";
}

optim::Schedule make_schedule(const Recipe& recipe, RunPlan& plan) {
  const ScheduleSection& section = recipe.schedule;
  plan.warmup_steps = section.warmup_steps
                          ? *section.warmup_steps
                          : static_cast<int64_t>(section.warmup_ratio * static_cast<double>(plan.steps));
  const optim::Schedule schedule{.peak = recipe.optimizer.learning_rate,
                                 .steps = plan.steps,
                                 .warmup = plan.warmup_steps,
                                 .floor = section.floor,
                                 .shape = optim::parse_shape(section.shape)};
  optim::check_schedule(schedule);
  return schedule;
}

Json fixed_values(const Recipe& recipe) {
  Json values = Json::object();
  for (const Key& key : schema()) {
    if (!key.may_change) values[key.name] = value_json(key, recipe);
  }
  // Of all ranks: on another mesh a rank may have another share of them.
  values["data.accumulation"] = recipe.data.accumulation * recipe.parallel.ranks();
  return values;
}

void check_continuation(const RunPlan& plan, const RunPlan& now, const std::filesystem::path& run) {
  if (plan.parallel != now.parallel) {
    throw Error(ErrorKind::usage,
                run.string() + ": the run began " + (plan.parallel ? "with" : "without") +
                    " a section `parallel`, and is continued " + (now.parallel ? "with" : "without") + " one",
                "its checkpoints belong to the other form: one process alone is parallel.replicate=1 there");
  }
  std::string different;
  for (const auto& [key, value] : now.recipe.items()) {
    // A run that began before there was such a key did what its default says.
    const Json before = plan.recipe.contains(key) ? plan.recipe.at(key) : value_json(*find_key(key), Recipe{});
    if (before != value)
      different += (different.empty() ? "" : "; ") + key +
                   (plan.parallel && key == "data.accumulation" ? " times the ranks was " : " was ") + before.dump() +
                   ", is " + value.dump();
  }
  if (!different.empty()) {
    throw Error(ErrorKind::usage, run.string() + ": the run began with another recipe: " + different,
                "continue it with `pacer train --run " + run.string() + "`, or give the new recipe another folder");
  }
  const auto same = [&](const std::string& before, const std::string& found, const std::string& what) {
    if (before == found) return;
    throw Error(
        ErrorKind::data,
        run.string() + ": " + what + " changed since the run began (fingerprint " + before + ", now " + found + ")",
        "put the old files back, or start a new run in another folder");
  };
  same(plan.train_rows, now.train_rows, "the training rows");
  same(plan.validation_rows, now.validation_rows, "the validation rows");
  same(plan.target, now.target, "the target");
  if (plan.kernels != now.kernels) {
    log_warning("the run began with kernels " + plan.kernels.dump() + " and continues with " + now.kernels.dump() +
                ": its results are as good, but not the same bits");
  }
}

void choose_f32_products(const std::optional<RunPlan>& earlier, RunPlan& now, bool measure) {
  static constexpr const char* kKey = "f32_products";
  nn::F32Products products;
  if (!earlier) {
    products = measure ? nn::measured_f32_products() : nn::f32_products_of_processor();
  } else if (const auto table = earlier->kernels.find(kKey); table != earlier->kernels.end()) {
    const auto library = [&](const char* product) {
      std::string name;
      take(*table, "plan.json: kernels.f32_products", product, name);
      return nn::f32_library(name);
    };
    products = {library("forward"), library("input_gradient"), library("weight_gradient")};
  }
  nn::use_f32_products(products);
  if (earlier && !earlier->kernels.contains(kKey)) return;  // begun before there was a choice
  now.kernels[kKey] = {{"forward", nn::name_of(products.forward)},
                       {"input_gradient", nn::name_of(products.input_gradient)},
                       {"weight_gradient", nn::name_of(products.weight_gradient)}};
}

Json kernel_choices() {
  Json choices = {{"torch", TORCH_VERSION},
                  {"capability", at::get_cpu_capability()},
                  {"rows_f32", nn::row_kernels<float>().name},
                  {"rows_bf16", nn::row_kernels<uint16_t>().name}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  Json sets = Json::array();
  if (__builtin_cpu_supports("avx2")) sets.push_back("avx2");
  if (__builtin_cpu_supports("avx512f")) sets.push_back("avx512f");
  if (__builtin_cpu_supports("avx512vnni")) sets.push_back("avx512vnni");
  if (__builtin_cpu_supports("avx512bf16")) sets.push_back("avx512bf16");
  choices["instructions"] = sets;
#endif
  return choices;
}

}  // namespace pacer::train
