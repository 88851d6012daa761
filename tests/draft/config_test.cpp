#include "pacer/draft/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"

namespace pacer::draft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Json golden(const std::string& folder) { return test::golden_json(folder + "/config.json"); }
DraftConfig read(const std::string& folder) { return DraftConfig::from_json(golden(folder), folder); }

std::string message_of(const Json& config, std::vector<int64_t> kept_ids = {}) {
  try {
    DraftConfig::from_json(config, "config.json", std::move(kept_ids));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    return error.what();
  }
  return "no error";
}

TEST(DraftConfig, ReadsDeepSpecsLayout) {
  const DraftConfig draft = read("dspark/vanilla");
  const Json json = golden("dspark/vanilla");
  EXPECT_EQ(draft.method, "dspark");
  EXPECT_EQ(draft.block_size, json["block_size"]);
  EXPECT_EQ(draft.mask_token_id, json["mask_token_id"]);
  EXPECT_EQ(draft.layers, json["num_hidden_layers"]);
  EXPECT_EQ(draft.target_layers, json["num_target_layers"]);
  EXPECT_EQ(draft.target_layer_ids, json["target_layer_ids"].get<std::vector<int64_t>>());
  EXPECT_EQ(draft.markov, MarkovKind::vanilla);
  EXPECT_EQ(draft.markov_rank, json["markov_rank"]);
  EXPECT_EQ(draft.confidence_head, json["enable_confidence_head"]);
  EXPECT_EQ(draft.confidence_with_markov, json["confidence_head_with_markov"]);
  EXPECT_TRUE(draft.sample_from_anchor);
  EXPECT_EQ(draft.drafts_per_block(), draft.block_size);
  EXPECT_TRUE(draft.sliding_window.empty());
  EXPECT_EQ(draft.draft_vocab(), draft.layer.vocab_size);

  EXPECT_EQ(read("dspark/rnn").markov, MarkovKind::rnn);
  EXPECT_EQ(read("dspark/gated").markov, MarkovKind::gated);
  EXPECT_FALSE(read("dspark/confidence_plain").confidence_with_markov);
  EXPECT_EQ(read("dspark/dflash").method, "dflash");
  EXPECT_TRUE(read("dspark/dflash").sample_from_anchor);  // same class, same slots
}

TEST(DraftConfig, ReadsSpecForgesNestedFields) {
  const DraftConfig dflash = read("specforge_dflash/dflash");
  const Json json = golden("specforge_dflash/dflash");
  EXPECT_EQ(dflash.method, "dflash");
  EXPECT_FALSE(dflash.sample_from_anchor);
  EXPECT_EQ(dflash.drafts_per_block(), dflash.block_size - 1);
  EXPECT_EQ(dflash.target_layer_ids, json["dflash_config"]["target_layer_ids"].get<std::vector<int64_t>>());
  EXPECT_EQ(dflash.mask_token_id, json["dflash_config"]["mask_token_id"]);

  const DraftConfig sliding = read("specforge_dflash/dflash_sliding");
  ASSERT_EQ(sliding.sliding_window.size(), 2u);
  EXPECT_EQ(sliding.sliding_window[0], golden("specforge_dflash/dflash_sliding")["sliding_window"].get<int64_t>());
  EXPECT_FALSE(sliding.sliding_window[1].has_value());

  const DraftConfig dspark = read("specforge_dflash/dspark");
  EXPECT_TRUE(dspark.sample_from_anchor);
  EXPECT_EQ(dspark.markov, MarkovKind::gated);
  EXPECT_TRUE(dspark.confidence_with_markov);
}

TEST(DraftConfig, WritesWhatItReads) {
  for (const char* folder : {"dspark/vanilla", "dspark/rnn", "dspark/dflash", "specforge_dflash/dflash",
                             "specforge_dflash/dflash_sliding", "specforge_dflash/dspark"}) {
    const DraftConfig draft = read(folder);
    const Json written = draft.to_json();
    EXPECT_EQ(written["sample_from_anchor"], draft.sample_from_anchor);
    EXPECT_EQ(written["capture"]["convention"], "output");
    const DraftConfig again = DraftConfig::from_json(written, folder);
    EXPECT_EQ(again.to_json(), written) << folder;
    EXPECT_EQ(again.method, draft.method);
    EXPECT_EQ(again.sample_from_anchor, draft.sample_from_anchor);
    EXPECT_EQ(again.sliding_window, draft.sliding_window);
    EXPECT_EQ(again.layer.rope.theta, draft.layer.rope.theta);
  }
}

TEST(DraftConfig, ExplicitFieldsWinOverTheClassName) {
  Json config = golden("dspark/dflash");
  config["sample_from_anchor"] = false;
  EXPECT_FALSE(DraftConfig::from_json(config, "c").sample_from_anchor);

  config = golden("dspark/dflash");
  config.erase("target_layer_ids");
  config["capture"] = {{"convention", "boundary"}, {"ids", {1, 3, 6}}};
  EXPECT_EQ(DraftConfig::from_json(config, "c").target_layer_ids, (std::vector<int64_t>{0, 2, 5}));
}

TEST(DraftConfig, TheReducedVocabularyComesFromTheWeightFile) {
  Json config = golden("dspark/vanilla");
  config["draft_vocab_size"] = 3;
  const DraftConfig draft = DraftConfig::from_json(config, "c", {4, 9, 50});
  EXPECT_EQ(draft.draft_vocab(), 3);
  EXPECT_EQ(draft.to_json()["draft_vocab_size"], 3);
  EXPECT_THAT(message_of(config), AllOf(HasSubstr("draft_vocab_size is 3"), HasSubstr("no d2t")));
  EXPECT_THAT(message_of(config, {4, 9}), HasSubstr("the length of d2t"));
  EXPECT_THAT(message_of(config, {9, 4, 50}), AllOf(HasSubstr("kept id 1 is 4"), HasSubstr("ascending")));
}

TEST(DraftConfig, ADraftForATargetHasItsSizesAndDefaultTaps) {
  const auto target = target::ModelConfig::from_json(golden("dspark/target"), "target");
  const DraftConfig draft = DraftConfig::for_target(target);
  EXPECT_EQ(draft.layer.hidden_size, target.hidden_size);
  EXPECT_TRUE(draft.layer.qk_norm);
  EXPECT_EQ(draft.target_layers, target.layers);
  EXPECT_EQ(draft.target_layer_ids, target::default_taps(target.layers));
}

struct Mistake {
  const char* what;
  Json patch;  // merged into the golden config; null removes
  std::vector<std::string> parts;
};

TEST(DraftConfigErrors, NameTheFieldAndWhatIsAllowed) {
  const Mistake mistakes[] = {
      {"slot layout unknown", {{"architectures", {"SomeDraft"}}}, {"sample_from_anchor", "missing"}},
      {"no taps", {{"target_layer_ids", nullptr}}, {"target_layer_ids", "missing"}},
      {"last layer tapped", {{"target_layer_ids", {0, 6}}}, {"target_layer_ids is [0, 6]", "to 5"}},
      {"descending taps", {{"target_layer_ids", {2, 0}}}, {"target_layer_ids is [2, 0]", "ascending"}},
      {"two tap lists",
       {{"capture", {{"convention", "output"}, {"ids", {0, 1, 5}}}}},
       {"capture is [0, 1, 5]", "[0, 2, 5]"}},
      {"convention", {{"capture", {{"convention", "middle"}, {"ids", {0}}}}}, {"capture.convention", "boundary"}},
      {"mask id", {{"mask_token_id", 97}}, {"mask_token_id is 97", "96"}},
      {"markov kind", {{"markov_head_type", "lstm"}}, {"markov_head_type is \"lstm\"", "vanilla"}},
      {"markov kind missing", {{"markov_head_type", nullptr}}, {"markov_head_type is missing"}},
      {"block size type", {{"block_size", "five"}}, {"block_size is \"five\"", "integer"}},
      {"domino", {{"dflash_config", {{"projector_type", "domino"}}}}, {"projector_type is \"domino\""}},
      {"two values", {{"dflash_config", {{"mask_token_id", 3}}}}, {"mask_token_id is 96 at the top and 3"}},
  };
  for (const Mistake& mistake : mistakes) {
    Json config = golden("dspark/vanilla");
    config.merge_patch(mistake.patch);
    const std::string message = message_of(config);
    EXPECT_THAT(message, HasSubstr("config.json: ")) << mistake.what;
    for (const std::string& part : mistake.parts) EXPECT_THAT(message, HasSubstr(part)) << mistake.what;
  }
}

}  // namespace
}  // namespace pacer::draft
