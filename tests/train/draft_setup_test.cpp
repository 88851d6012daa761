#include "pacer/train/draft_setup.h"

#include <fstream>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"
#include "tests/train/tiny.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

struct Case {
  pacer::test::TemporaryFolder folder;
  Recipe recipe = test::tiny_recipe(folder.path());
  std::vector<data::TokenRow> rows = test::tiny_rows(30);
  target::ModelConfig target = read_target_config(test::tiny_target());

  std::string refusal() const {
    try {
      draft_config(recipe, target, rows);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "accepted";
  }
};

TEST(DraftSetup, TakesSizesFromTheTargetAndChoicesFromTheRecipe) {
  Case setup;
  setup.recipe.draft.layers = 2;
  setup.recipe.draft.vocabulary = 40;
  setup.recipe.draft.sliding_window = {0, 16};
  const draft::DraftConfig config = draft_config(setup.recipe, setup.target, setup.rows);
  EXPECT_EQ(config.layer.hidden_size, setup.target.hidden_size);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.target_layer_ids, (std::vector<int64_t>{0, 2, 5}));
  EXPECT_EQ(config.draft_vocab(), 40);
  EXPECT_EQ(config.markov, draft::MarkovKind::vanilla);
  EXPECT_EQ(config.markov_rank, 8);
  EXPECT_TRUE(config.confidence_head && config.confidence_with_markov);
  EXPECT_FALSE(config.sliding_window[0]);
  EXPECT_EQ(config.sliding_window[1], 16);
  EXPECT_GT(coverage(setup.rows, config.kept_ids), 0.5);
  EXPECT_DOUBLE_EQ(coverage(setup.rows, {}), 1.0);
}

TEST(DraftSetup, LabelsAreTheTokensUnlessTheRecipeAsksForSoftOnes) {
  Case setup;
  EXPECT_FALSE(loss_options(setup.recipe).soft_labels);
  setup.recipe.loss.labels = "soft";
  EXPECT_TRUE(loss_options(setup.recipe).soft_labels);
}

TEST(DraftSetup, DFlashHasNoHeads) {
  Case setup;
  setup.recipe.draft.method = "dflash";
  const draft::DraftConfig config = draft_config(setup.recipe, setup.target, setup.rows);
  EXPECT_EQ(config.markov, draft::MarkovKind::none);
  EXPECT_EQ(config.markov_rank, 0);
  EXPECT_FALSE(config.confidence_head);
}

TEST(DraftSetup, RefusesAMaskTokenThatIsAWord) {
  Case setup;
  setup.recipe.draft.mask_token_id = setup.rows[7].ids[2];
  EXPECT_NE(setup.refusal().find("which occurs in training row"), std::string::npos);
  setup.recipe.draft.mask_token_id = 97;
  EXPECT_EQ(setup.refusal(), "draft.mask_token_id is 97; allowed: below 97, the target's vocabulary");
}

TEST(DraftSetup, RefusesWhatTheTargetDoesNotHave) {
  Case setup;
  setup.recipe.draft.vocabulary = 98;
  EXPECT_NE(setup.refusal().find("the target has only 97 tokens"), std::string::npos);
  setup.recipe.draft.vocabulary = 0;
  setup.recipe.draft.taps = {0, 6};  // the last layer may not be tapped
  EXPECT_NE(setup.refusal(), "accepted");
}

TEST(DraftSetup, TheFingerprintOfATargetFollowsItsFiles) {
  const pacer::test::TemporaryFolder temporary;
  for (const auto& entry : fs::directory_iterator(test::tiny_target())) fs::copy(entry.path(), temporary.path());
  const std::string before = target_fingerprint(temporary.path());
  EXPECT_EQ(before, target_fingerprint(test::tiny_target()));
  std::ofstream(temporary.path() / "notes.txt") << "x";
  EXPECT_EQ(before, target_fingerprint(temporary.path()));
  std::fstream weights(temporary.path() / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-1, std::ios::end);
  weights.put('\x55');
  weights.close();
  EXPECT_NE(before, target_fingerprint(temporary.path()));
}

}  // namespace
}  // namespace pacer::train
