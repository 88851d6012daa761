#include "pacer/train/budget.h"

#include <algorithm>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/optim/clip.h"
#include "pacer/train/window_loss.h"

namespace pacer::train {
namespace {

struct Clock {
  bool cpu;
  double of(const Stopwatch& watch) const { return cpu ? watch.cpu() : watch.wall(); }
  double of(const FeatureSource& source) const { return cpu ? source.statistics().cpu_s : source.statistics().wall_s; }
};

// The checkpoint of step 0.
void save_start(Workbench& bench, Ranks& ranks, CheckpointStore& checkpoints) {
  if (!bench.together) return checkpoints.save(TrainState{}, bench.fingerprints, *bench.draft, *bench.optimizer);
  bench.together->save(checkpoints.path_of(0), TrainState{}, bench.fingerprints);
  if (ranks.first()) checkpoints.mark_latest(0);
}

// What a step computes. Ranks take the whole step, whose messages are part of what it costs, with a rate of nothing.
void pass(Workbench& bench, const WindowPlan& plan) {
  const BatchOf batch_of = batches_when_needed(*bench.features, plan);
  if (bench.together) {
    bench.together->step(plan, batch_of, /*learning_rate=*/0);
    return;
  }
  window_gradients(*bench.draft, plan, batch_of);
  optim::global_norm(bench.optimizer->gradients());
  bench.draft->refresh();
  bench.optimizer->clear_gradients();
}

}  // namespace

Measured measure(Workbench& bench, Ranks& ranks, bool features_kept, CheckpointStore& checkpoints,
                 const Stopwatch& since) {
  const Recipe& recipe = bench.recipe;
  const Clock clock{recipe.schedule.budget_clock == "cpu"};
  const auto seconds_of = [&](const auto& work) {
    const Stopwatch watch;
    work();
    return clock.of(watch);
  };
  Measured measured;
  measured.checkpoint = seconds_of([&] { save_start(bench, ranks, checkpoints); });

  const SampleOrder order(static_cast<uint64_t>(recipe.seed), bench.features->rows(), recipe.data.sequences,
                          recipe.data.accumulation * ranks.data_size());
  const BatchFeed::PlanOf plan_of = bench.plan_of(order);
  // The first pass pays for buffers and packed weights once; the others are what a step costs.
  constexpr int64_t kPasses = 4;
  std::vector<double> passes;
  for (int64_t step = 1; step <= kPasses; ++step) {
    const double in_target = clock.of(*bench.features);
    const double all = seconds_of([&] { pass(bench, plan_of(step)); });
    passes.push_back(all - (clock.of(*bench.features) - in_target));
  }
  std::sort(passes.begin() + 1, passes.end());
  measured.step = passes[1 + (passes.size() - 1) / 2];
  const FeatureSource::Statistics& features = bench.features->statistics();
  // A rank's share of four steps may be empty; then its features cost nothing that could be measured.
  const int64_t computed = std::max<int64_t>(1, features.rows_computed);
  measured.row = clock.of(*bench.features) / static_cast<double>(computed);
  measured.kept = features_kept;
  measured.groups_done = features.groups_computed;
  measured.groups = std::max<int64_t>(1, bench.features->rows() * measured.groups_done / computed);

  if (bench.validation != nullptr) {
    measured.validation = seconds_of([&] {
      bench.together ? bench.together->evaluate(*bench.validation, recipe.validation.rows)
                     : evaluate(*bench.draft, *bench.validation, recipe.validation.rows, recipe);
    });
    if (features_kept) measured.validation -= clock.of(*bench.validation);  // computed once, and that is now done
  }
  if (bench.together) bench.together->load(checkpoints.path_of(0));
  measured.spent = clock.of(since);
  const std::string place = "what rank 0 measured";
  const std::string text = ranks.from_first(measured.to_json().dump(), place.c_str());
  return Measured::from_json(parse_json(text, place), place);
}

}  // namespace pacer::train
