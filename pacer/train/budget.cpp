#include "pacer/train/budget.h"

#include <algorithm>

#include "pacer/optim/clip.h"
#include "pacer/train/window_loss.h"

namespace pacer::train {
namespace {

struct Clock {
  bool cpu;
  double of(const Stopwatch& watch) const { return cpu ? watch.cpu() : watch.wall(); }
  double of(const FeatureSource& source) const { return cpu ? source.statistics().cpu_s : source.statistics().wall_s; }
};

}  // namespace

Measured measure(Workbench& bench, bool features_kept, CheckpointStore& checkpoints, const Stopwatch& since) {
  const Recipe& recipe = bench.recipe;
  const Clock clock{recipe.schedule.budget_clock == "cpu"};
  const SampleOrder order(static_cast<uint64_t>(recipe.seed), bench.features->rows(), recipe.data.sequences,
                          recipe.data.accumulation);
  // The first pass pays for buffers and packed weights once; the others are what a step costs.
  constexpr int64_t kPasses = 4;
  std::vector<double> passes;
  for (int64_t step = 1; step <= kPasses; ++step) {
    const double in_target = clock.of(*bench.features);
    const Stopwatch watch;
    window_gradients(*bench.draft, *bench.features, order.window(step), step, recipe, bench.loss);
    optim::global_norm(bench.optimizer->gradients());
    bench.draft->refresh();
    passes.push_back(clock.of(watch) - (clock.of(*bench.features) - in_target));
    bench.optimizer->clear_gradients();
  }
  std::sort(passes.begin() + 1, passes.end());

  Measured measured;
  measured.step = passes[1 + (passes.size() - 1) / 2];
  measured.row = clock.of(*bench.features) / static_cast<double>(bench.features->statistics().rows_computed);
  measured.kept = features_kept;
  measured.groups_done = bench.features->statistics().groups_computed;
  measured.groups =
      std::max<int64_t>(1, bench.features->rows() * measured.groups_done / bench.features->statistics().rows_computed);
  if (bench.validation != nullptr) {
    const Stopwatch watch;
    evaluate(*bench.draft, *bench.validation, recipe.validation.rows, recipe);
    measured.validation = clock.of(watch);
    if (features_kept) measured.validation -= clock.of(*bench.validation);  // computed once, and that is now done
  }
  const Stopwatch watch;
  checkpoints.save(TrainState{}, bench.fingerprints, *bench.draft, *bench.optimizer);
  measured.checkpoint = clock.of(watch);
  measured.spent = clock.of(since);
  return measured;
}

}  // namespace pacer::train
