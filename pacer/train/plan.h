// What a run has decided once and uses again whenever it is continued: steps, threads, kernels, fingerprints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "pacer/base/json.h"
#include "pacer/optim/schedule.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

struct RunPlan {
  int64_t steps = 0;         // optimizer steps
  int64_t warmup_steps = 0;  // of the learning rate
  int64_t end = 0;           // position in the sequence of rows where the run stops (sample_order.h)
  std::string how;           // "3 epochs of 960 rows, 8 rows a step"
  bool parallel = false;     // ranks train together: checkpoints are theirs, and a step's micro-batches those of all
  int64_t threads = 0;
  int64_t rows_together = 0;                        // of a pass of the target
  Json kernels;                                     // instruction sets that decide which kernels run
  Json recipe;                                      // key -> value, for the keys that must not change
  std::string train_rows, validation_rows, target;  // fingerprints; empty without validation
  Json measured;                                    // what a time budget was turned into steps with, or null

  Json to_json() const;
  // Throws Error{format} naming the place and the field.
  static RunPlan from_json(const Json& json, const std::string& place);
};

// Rows of the training set and how many of them a step takes.
struct DataSize {
  int64_t rows = 0, rows_per_step = 0;
  int64_t ranks = 1;  // that share the rows of a step
};

// Measured before the first step; seconds on the clock of the budget.
struct Measured {
  double spent = 0;       // since the run began
  double step = 0;        // one optimizer step with features at hand
  double row = 0;         // features of one row
  double validation = 0;  // one validation, 0 without
  double checkpoint = 0;  // one checkpoint
  int64_t groups = 0;     // of rows whose features are computed together
  int64_t groups_done = 0;
  bool kept = false;  // whether features of all rows stay in memory
  Json to_json() const;
  static Measured from_json(const Json& json, const std::string& place);  // throws Error{format}
};

// Fills steps, end and how. Of schedule.steps and schedule.epochs one is set.
void plan_by_count(const ScheduleSection& schedule, const DataSize& data, RunPlan& plan);

// The most steps whose expected time fits, W the rows of a step that one rank computes:
//   spent + N step + features(N) + validations(N) validation + checkpoints(N) checkpoint <= budget
// features(N): with kept features the groups that N steps touch at least once, G (1 - (1 - 1/G)^(N W)) on average, less
// those done; else those of every row again. Throws Error{usage} when not even one step fits.
void plan_by_budget(const Recipe& recipe, const DataSize& data, const Measured& measured, RunPlan& plan);

// Sets warmup_steps from the recipe and plan.steps, and checks the schedule. Throws Error{usage}.
optim::Schedule make_schedule(const Recipe& recipe, RunPlan& plan);

// The values of all keys that a continued run must share with its beginning.
Json fixed_values(const Recipe& recipe);

// Throws Error{usage} that names every key whose value differs from the one in the plan; Error{data} when rows or
// target are other ones. Logs a warning when the processor offers other kernels than those the run began with.
void check_continuation(const RunPlan& plan, const RunPlan& now, const std::filesystem::path& run);

// Decides which library takes the f32 products of a draft in f32, writes it to now.kernels and uses it: as the run
// began, or by measuring when it begins now; with measure = false what is expected of the processor.
void choose_f32_products(const std::optional<RunPlan>& earlier, RunPlan& now, bool measure = true);

// Which kernels this process will choose: version and capability of the tensor library, instruction sets.
Json kernel_choices();

}  // namespace pacer::train
