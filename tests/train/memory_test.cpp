#include "pacer/train/memory.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/draft/training.h"
#include "pacer/draft/weights.h"
#include "pacer/train/draft_setup.h"
#include "tests/support/files.h"
#include "tests/train/tiny.h"

namespace pacer::train {
namespace {

struct Case {
  pacer::test::TemporaryFolder folder;
  Recipe recipe = test::tiny_recipe(folder.path());
  std::vector<data::TokenRow> rows = test::tiny_rows(30), none;
  target::ModelConfig target = read_target_config(test::tiny_target());
  int64_t threads = 1;

  MemoryEstimate estimate() const {
    return estimate_memory(recipe, target, draft_config(recipe, target, rows), rows, none, threads);
  }
  uint64_t bytes(const std::string& what) const {
    for (const MemoryLine& line : estimate().lines) {
      if (line.what == what) return line.bytes;
    }
    ADD_FAILURE() << "no line " << what;
    return 0;
  }
};

TEST(MemoryEstimate, CountsTheParametersThatADraftReallyHas) {
  Case setup;
  device::Runtime runtime = device::Runtime::open("cpu");
  const std::shared_ptr<const target::Target> target = target::Target::load(test::tiny_target(), at::kFloat, runtime);
  for (const char* markov : {"vanilla", "gated", "rnn", "none"}) {
    for (const bool with_markov : {true, false}) {
      setup.recipe.draft.markov = markov;
      setup.recipe.draft.confidence_with_markov = with_markov;
      setup.recipe.draft.vocabulary = with_markov ? 50 : 0;
      setup.recipe.draft.layers = with_markov ? 2 : 1;
      const draft::DraftConfig config = draft_config(setup.recipe, setup.target, setup.rows);
      const auto draft =
          draft::DraftTraining::create(config, loss_options(setup.recipe), target, 1, at::kFloat, runtime);
      int64_t count = 0;
      for (const auto& [name, weight] : draft->parameters()) count += weight.numel();
      EXPECT_EQ(draft_parameters(config), count) << markov << " " << with_markov;
    }
  }
  EXPECT_EQ(setup.bytes("target weights"), target->weight_bytes());
}

TEST(MemoryEstimate, GrowsWithWhatItNames) {
  Case setup;
  const auto grows = [&](const std::string& what, auto change) {
    const uint64_t before = setup.bytes(what);
    const Recipe recipe = setup.recipe;
    change(setup.recipe);
    EXPECT_GT(setup.bytes(what), before) << what;
    setup.recipe = recipe;
  };
  grows("draft masters, gradients and moments", [](Recipe& r) { r.draft.layers = 2; });
  grows("context of the draft", [](Recipe& r) { r.data.sequences = 6; });
  grows("activations of blocks", [](Recipe& r) { r.data.anchors = 8; });
  setup.recipe.data.anchors_at_once = 2;
  grows("activations of blocks", [](Recipe& r) { r.data.anchors_at_once = 4; });
  const uint64_t bounded = setup.bytes("activations of blocks");
  setup.recipe.data.anchors = 400;
  EXPECT_EQ(setup.bytes("activations of blocks"), bounded) << "however many anchors there are";
  grows("features of two micro-batches", [](Recipe& r) { r.data.sequences = 6; });
  grows("logits", [](Recipe& r) { r.loss.tile_mb = 2; });
  grows("activations of the target", [](Recipe& r) { r.features.rows_together = 16; });
  grows("packed target weights", [](Recipe& r) { r.features.kernels = "decoding"; });
}

TEST(MemoryEstimate, CountsTheLogitsAndActivationsOfEveryThreadThatComputesParts) {
  Case setup;
  setup.recipe.data.anchors = 2000, setup.recipe.loss.tile_mb = 0;
  const uint64_t logits = setup.bytes("logits"), activations = setup.bytes("activations of blocks");
  setup.threads = 2;
  EXPECT_EQ(setup.bytes("logits"), 2 * logits);
  EXPECT_GT(setup.bytes("activations of blocks"), activations);
  setup.recipe.loss.tile_mb = 2;
  const uint64_t asked = setup.bytes("logits");
  setup.threads = 1;
  EXPECT_EQ(setup.bytes("logits"), asked) << "what was asked for is for all threads";
}

TEST(MemoryEstimate, CountsTheStatesOfEachRouteAndWhatRanksShare) {
  Case setup;
  const std::string what = "draft masters, gradients and moments";
  const draft::DraftConfig config = draft_config(setup.recipe, setup.target, setup.rows);
  const uint64_t adamw = setup.bytes(what);
  EXPECT_EQ(adamw, 16 * static_cast<uint64_t>(draft_parameters(config)));
  setup.recipe.optimizer.matrix = "muon";
  uint64_t matrices = 0;
  for (const auto& [name, shape] : draft::parameter_shapes(config)) {
    if (shape.size() < 2 || name.find("head") != std::string::npos) continue;
    matrices += static_cast<uint64_t>(shape[0] * shape[1]);
  }
  EXPECT_EQ(setup.bytes(what), adamw - 4 * matrices) << "one f32 momentum in place of two moments";
  setup.recipe.optimizer.momentum_dtype = "bf16";
  EXPECT_EQ(setup.bytes(what), adamw - 6 * matrices);
  setup.recipe.parallel.replicate = 1;
  const uint64_t one = setup.bytes(what);
  setup.recipe.parallel.replicate = 4;
  EXPECT_LT(setup.bytes(what), one);
  setup.recipe.optimizer.rest = "sharded_adamw";
  const uint64_t rows = setup.bytes(what);
  setup.recipe.parallel.replicate = 1, setup.recipe.parallel.shard = 4;
  EXPECT_LT(setup.bytes(what), rows) << "every row holds all chunks";
}

TEST(MemoryEstimate, KeptFeaturesAreWhatTheRowsNeedAtMostWhatIsAllowed) {
  Case setup;
  int64_t tokens = 0;
  for (const auto& row : setup.rows) tokens += static_cast<int64_t>(row.ids.size());
  const uint64_t all = static_cast<uint64_t>(tokens) * (3 + 1) * 32 * 4;
  EXPECT_EQ(setup.bytes("kept features"), all);
  setup.recipe.features.memory_mb = 0;
  EXPECT_EQ(setup.bytes("kept features"), 0u);
  const FeatureMemory none = feature_memory(setup.recipe, setup.target, 3, setup.rows, setup.none);
  EXPECT_FALSE(none.train_fits);
  EXPECT_TRUE(none.validation_fits);
}

TEST(MemoryEstimate, RefusesWhatCannotFitAndNamesTheSetting) {
  Case setup;
  setup.recipe.loss.tile_mb = 4000;
  const MemoryEstimate estimate = setup.estimate();
  EXPECT_NO_THROW(require_memory(estimate, {uint64_t{1} << 40, uint64_t{1} << 40}));
  try {
    require_memory(estimate, {uint64_t{2} << 30, uint64_t{1} << 30});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resources);
    EXPECT_NE(std::string(error.what()).find("1.07 GB are available"), std::string::npos) << error.what();
    EXPECT_EQ(error.hint().find("make smaller what is largest: loss.tile_mb"), 0u) << error.hint();
  }
}

TEST(MemoryEstimate, ADeviceHoldsAllButTheFeaturesAndItsEndNamesTheSetting) {
  Case setup;
  setup.recipe.loss.tile_mb = 4000;
  const MemoryEstimate estimate = setup.estimate(), part = estimate.device_part();
  EXPECT_LT(part.total(), estimate.total());
  for (const MemoryLine& line : part.lines) EXPECT_NE(line.what, "kept features");
  const device::Runtime runtime = device::Runtime::open("cpu");
  const Error ended = out_of_memory(estimate, runtime, "tried to allocate 5 GB\nand a stack");
  EXPECT_EQ(ended.kind(), ErrorKind::resources);
  EXPECT_NE(std::string(ended.what()).find("tried to allocate 5 GB"), std::string::npos) << ended.what();
  EXPECT_EQ(std::string(ended.what()).find("stack"), std::string::npos) << ended.what();
  EXPECT_EQ(ended.hint().find("make smaller what is largest: loss.tile_mb"), 0u) << ended.hint();
  EXPECT_EQ(ended.hint().find("features.memory_mb"), std::string::npos) << ended.hint();
}

}  // namespace
}  // namespace pacer::train
