#include "pacer/train/run_start.h"

#include <string>

#include <c10/util/Exception.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/device/generators.h"

namespace pacer::train {

namespace fs = std::filesystem;

std::optional<RunPlan> earlier_plan(const RunFolder& folder, Ranks& ranks) {
  const bool exists = ranks.first() && fs::exists(folder.plan());
  const std::string text = ranks.from_first(exists ? read_file(folder.plan()) : std::string(), "the run's plan");
  if (text.empty()) return std::nullopt;
  const std::string place = folder.plan().string();
  return RunPlan::from_json(parse_json(text, place), place);
}

std::optional<fs::path> newest_checkpoint(const CheckpointStore& checkpoints, Ranks& ranks) {
  std::string path;
  if (ranks.first()) path = checkpoints.newest().value_or(fs::path()).string();
  path = ranks.from_first(path, "the newest checkpoint");
  return path.empty() ? std::nullopt : std::optional<fs::path>(path);
}

void use_threads(const std::optional<RunPlan>& earlier, const Recipe& recipe, device::Runtime& runtime) {
  const int64_t threads = earlier ? earlier->threads : recipe.parallel.exact ? 1 : recipe.threads;
  if (threads == 0) return;
  try {
    runtime.set_threads(static_cast<int>(threads));
  } catch (const Error& error) {
    if (!earlier) throw;
    throw Error(error.kind(), std::string(error.what()) + "; the run began with " + std::to_string(threads),
                "continue it on a machine with as many cores: with fewer threads its bits would differ");
  }
}

void choose_f32_products(const std::optional<RunPlan>& earlier, const Recipe& recipe, Ranks& ranks, RunPlan& plan) {
  if (ranks.first() || earlier) choose_f32_products(earlier, plan, !recipe.parallel.exact);
  if (!ranks.parallel() || earlier) return;
  const std::string place = "the plan of rank 0";
  const std::string text = ranks.from_first(plan.to_json().dump(), "a new plan");
  choose_f32_products(RunPlan::from_json(parse_json(text, place), place), plan);
}

void start_generator(const std::optional<fs::path>& checkpoint, const Recipe& recipe, Ranks& ranks) {
  const uint64_t seed = static_cast<uint64_t>(recipe.seed) +
                        static_cast<uint64_t>(ranks.rank()) * static_cast<uint64_t>(recipe.parallel.generator_stride);
  if (!checkpoint) return device::seed_generators(ranks.runtime(), seed);
  load_generator(*checkpoint, ranks.runtime(), seed, ranks.rank(), ranks.parallel() ? ranks.world().size() : 0);
}

void write_run_files(const RunFolder& folder, Ranks& ranks, const RunFiles& files) {
  if (!ranks.first()) return;
  if (files.plan) {
    write_file(folder.recipe(), files.recipe);
    write_file(folder.plan(), files.plan->to_json().dump(2) + "\n");
  }
  write_file(folder.parameters(), files.parameters);
  write_file(folder.environment(), files.environment.dump(2) + "\n");
}

std::unique_ptr<MetricsLog> open_metrics(const RunFolder& folder, Ranks& ranks, const Recipe& recipe,
                                         std::optional<int64_t> step) {
  if (!ranks.first()) return nullptr;
  return std::make_unique<MetricsLog>(folder.metrics(), recipe.logging.tensorboard ? folder.tensorboard() : fs::path(),
                                      step);
}

void explaining_failures(Ranks& ranks, const MemoryEstimate& estimate, const std::function<void()>& steps) {
  try {
    steps();
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& ended) {
    throw out_of_memory(estimate, ranks.runtime(), ended.what());
  } catch (const std::exception& failure) {
    if (ranks.parallel() && ranks.world().lost()) throw ranks.world().lost_error(failure.what());
    throw;
  }
}

}  // namespace pacer::train
