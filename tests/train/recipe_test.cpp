#include "pacer/train/recipe_reader.h"

#include <fstream>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/train/schema.h"
#include "tests/support/files.h"

namespace pacer::train {
namespace {

const std::string kSmall = R"(model:
  target: models/small   # a comment
data:
  train: rows.jsonl
schedule:
  epochs: 2
)";

struct Refusal {
  std::string what, hint;
};

Refusal refusal(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_recipe(yaml, "r.yaml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return {error.what(), error.hint()};
  }
  return {"accepted", ""};
}

TEST(Recipe, TakesValuesFromTheFileAndDefaultsForTheRest) {
  const ResolvedRecipe resolved = parse_recipe(kSmall + R"(optimizer:
  learning_rate: 3e-4
  rates: {"markov_head.*": 3}
draft:
  taps: [1, 14, 27]
  mask_token_id: 3
  warm_start: false
seed: 1_000
)",
                                               "r.yaml");
  const Recipe& recipe = resolved.recipe;
  EXPECT_EQ(recipe.model.target, "models/small");
  EXPECT_EQ(recipe.schedule.epochs, 2.0);
  EXPECT_EQ(recipe.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(recipe.optimizer.rates.at("markov_head.*"), 3.0);
  EXPECT_EQ(recipe.draft.taps, (std::vector<int64_t>{1, 14, 27}));
  EXPECT_EQ(recipe.draft.mask_token_id, 3);
  EXPECT_FALSE(recipe.draft.warm_start);
  EXPECT_EQ(recipe.seed, 1000);
  EXPECT_EQ(recipe.optimizer.beta1, Recipe{}.optimizer.beta1);
  EXPECT_EQ(resolved.origins.at("model.target"), "r.yaml:2:3");
  EXPECT_EQ(resolved.origins.at("seed"), "r.yaml:14:1");
  EXPECT_EQ(resolved.origins.at("optimizer.beta1"), "default");
}

TEST(Recipe, OverridesWinAndPassTheSameChecks) {
  const ResolvedRecipe resolved =
      parse_recipe(kSmall, "r.yaml", {"schedule.epochs=null", "schedule.steps=1e3", "draft.taps=[0, 2]", "seed=7"});
  EXPECT_EQ(resolved.recipe.schedule.steps, 1000);
  EXPECT_FALSE(resolved.recipe.schedule.epochs);
  EXPECT_EQ(resolved.recipe.draft.taps, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(resolved.recipe.seed, 7);
  EXPECT_EQ(resolved.origins.at("draft.taps"), "override");
  EXPECT_EQ(refusal(kSmall, {"optimizer.learning_rate=3x"}).what,
            "override 'optimizer.learning_rate=3x':1:25: optimizer.learning_rate is '3x'; allowed: number, above 0, "
            "at most 1");
  EXPECT_EQ(refusal(kSmall, {"optimizer.learnin_rate=1"}).hint, "did you mean 'optimizer.learning_rate'?");
  EXPECT_EQ(refusal(kSmall, {"optimizer.learning_rate"}).what,
            "override 'optimizer.learning_rate': not of the form section.key=value");
  EXPECT_NE(refusal(kSmall, {"optimizer.learning_rate="}).what.find("is nothing; allowed: number"), std::string::npos);
}

TEST(Recipe, NamesPlaceFindingAllowedAndNearestOfAnUnknownKey) {
  const Refusal misspelt = refusal("model:\n  target: t\n  dtyp: bf16\n");
  EXPECT_EQ(misspelt.what, "r.yaml:3:3: unknown key 'model.dtyp'; allowed in model: target, dtype");
  EXPECT_EQ(misspelt.hint, "did you mean 'model.dtype'?");
  EXPECT_EQ(refusal("draft:\n  anchors: 3\n").hint, "did you mean 'data.anchors'?");  // right word, wrong section
  const Refusal section = refusal("optimiser:\n  clip: 1\n");
  EXPECT_EQ(section.what.substr(0, 39), "r.yaml:1:1: unknown section 'optimiser'");
  EXPECT_EQ(section.hint, "did you mean 'optimizer'?");
  EXPECT_EQ(refusal("sead: 3\n").hint, "did you mean 'seed'?");
}

TEST(Recipe, SaysWhatIsAllowedInsteadOfAWrongValue) {
  EXPECT_EQ(refusal("model:\n  dtype: bf61\n").what, "r.yaml:2:10: model.dtype is 'bf61'; allowed: bf16, f32");
  EXPECT_EQ(refusal("schedule:\n  shape: cosin\n").hint, "did you mean 'cosine'?");
  EXPECT_EQ(refusal("draft:\n  layers: 2.5\n").what,
            "r.yaml:2:11: draft.layers is '2.5'; allowed: whole number, at least 1, at most 64");
  EXPECT_EQ(refusal("draft:\n  layers: \"2\"\n").what,
            "r.yaml:2:11: draft.layers is the text \"2\"; allowed: whole number, at least 1, at most 64");
  EXPECT_EQ(refusal("draft:\n  warm_start: yes\n").what,
            "r.yaml:2:15: draft.warm_start is 'yes'; allowed: true or false");
  EXPECT_EQ(refusal("draft:\n  taps: 3\n").what,
            "r.yaml:2:9: draft.taps is '3'; allowed: list of whole numbers, at least -1, at most 1024");
  EXPECT_NE(refusal("optimizer:\n  learning_rate: 0\n").what.find("above 0"), std::string::npos);
  EXPECT_NE(refusal("optimizer:\n  learning_rate: .nan\n").what.find("is '.nan'"), std::string::npos);
  EXPECT_NE(refusal("optimizer:\n  rates: {a: -1}\n").what.find("r.yaml:2:14"), std::string::npos);
  EXPECT_EQ(refusal("optimizer:\n  routes: {a: adam}\n").hint, "did you mean 'adamw'?");
  EXPECT_NE(refusal("model: 3\n").what.find("section 'model' is '3'"), std::string::npos);
  EXPECT_NE(refusal("- a\n").what.find("found a list"), std::string::npos);
  EXPECT_EQ(refusal("model:\n  target: t\nschedule:\n  steps: 3\n").what, "r.yaml: 'data.train' is missing");
}

TEST(Recipe, NamesBothSidesOfAConflict) {
  const Refusal both = refusal(kSmall + "  steps: 10\n");
  EXPECT_EQ(both.what, "r.yaml:6:3: schedule.epochs contradicts schedule.steps (r.yaml:7:3)");
  EXPECT_NE(both.hint.find("schedule.steps=null"), std::string::npos);
  EXPECT_NE(refusal("model:\n  target: t\ndata:\n  train: r\n").what.find("does not say how long to train"),
            std::string::npos);
  const auto conflicting = [](const std::vector<std::string>& overrides) { return refusal(kSmall, overrides).what; };
  EXPECT_NE(conflicting({"draft.method=dflash", "draft.markov=gated"}), "accepted");
  EXPECT_NE(conflicting({"draft.method=dflash", "draft.confidence=true"}), "accepted");
  EXPECT_EQ(conflicting({"draft.method=dflash"}), "accepted");
  EXPECT_EQ(conflicting({"draft.method=dflash", "draft.sample_from_anchor=false"}), "accepted");
  EXPECT_NE(conflicting({"draft.sample_from_anchor=false"}), "accepted");
  EXPECT_NE(conflicting({"draft.markov=none", "draft.markov_rank=8"}), "accepted");
  EXPECT_NE(conflicting({"draft.taps=[3, 1]"}), "accepted");
  EXPECT_NE(conflicting({"draft.taps=[1, 1]"}), "accepted");
  EXPECT_NE(conflicting({"draft.sliding_window=[8]"}), "accepted");
  EXPECT_NE(conflicting({"loss.ce=0", "loss.l1=0"}), "accepted");
  EXPECT_NE(conflicting({"loss.weights=dpace"}), "accepted");
  EXPECT_NE(conflicting({"loss.renormalised_teacher=true"}), "accepted");
  EXPECT_NE(conflicting({"data.validation=v", "data.validation_rows=3"}), "accepted");
  EXPECT_NE(conflicting({"validation.every=10"}), "accepted");
  EXPECT_NE(conflicting({"schedule.warmup_steps=3", "schedule.warmup_ratio=0.1"}), "accepted");
  EXPECT_NE(conflicting({"schedule.epochs=null", "schedule.steps=5", "schedule.warmup_steps=5"}), "accepted");
  EXPECT_NE(conflicting({"data.max_length=8", "draft.block_size=8"}), "accepted");
  EXPECT_EQ(conflicting({"optimizer.matrix=muon", "optimizer.momentum=0.9"}), "accepted");
  EXPECT_EQ(conflicting({"optimizer.routes={\"fc.*\": muon}", "optimizer.momentum=0.9"}), "accepted");
  EXPECT_EQ(conflicting({"optimizer.momentum=0.9"}),
            "override optimizer.momentum is a setting of Muon, which nothing takes: 'adamw' in optimizer.matrix");
  EXPECT_NE(conflicting({"optimizer.matrix=muon", "optimizer.restarts=[]"}), "accepted");
  EXPECT_EQ(conflicting({"optimizer.matrix=muon", "optimizer.restarts=[]", "optimizer.newton_schulz_dtype=f32"}),
            "accepted");
  EXPECT_NE(conflicting({"optimizer.matrix=muon", "optimizer.restarts=[3, 2]"}), "accepted");
}

TEST(Recipe, RanksNeedSizesAndWhatTheyDoMustFit) {
  const auto conflicting = [](const std::vector<std::string>& overrides) { return refusal(kSmall, overrides).what; };
  EXPECT_EQ(conflicting({"parallel.replicate=2"}), "accepted");
  EXPECT_EQ(conflicting({"parallel.shard=2", "parallel.exact=true", "threads=1", "parallel.accumulation=no_sync"}),
            "accepted");
  EXPECT_EQ(conflicting({"parallel.exact=true"}), "override parallel.exact is given without parallel.replicate");
  EXPECT_EQ(conflicting({"parallel.shard=2", "parallel.exact=true", "threads=2"}),
            "override parallel.exact needs one thread and there are 2 in threads (override)");
  EXPECT_NE(conflicting({"parallel.shard=2", "parallel.exact=true", "parallel.message_dtype=bf16"}), "accepted");
  EXPECT_NE(conflicting({"parallel.shard=0"}), "accepted");
  EXPECT_NE(conflicting({"parallel.accumulation=sum"}), "accepted");
}

TEST(Recipe, PrintsWhatItReadsBackTheSame) {
  const ResolvedRecipe resolved = parse_recipe(
      kSmall, "r.yaml",
      {"optimizer.rates={\"markov_head.*\": 3}", "optimizer.matrix=muon",
       "optimizer.routes={\"fc.*\": sharded_adamw, a: muon}", "optimizer.decays={\"*norm*\": 0}", "draft.taps=[-1, 4]",
       "data.validation=\"a: b #c\"", "optimizer.epsilon=1e-7", "model.target=\"null\"", "device=cpu"});
  const ResolvedRecipe again = parse_recipe(resolved_yaml(resolved), "again.yaml");
  for (const Key& key : schema()) {
    EXPECT_EQ(value_json(key, again.recipe), value_json(key, resolved.recipe)) << key.name;
  }
  EXPECT_NE(resolved_yaml(resolved).find("# r.yaml:6:3"), std::string::npos);
  EXPECT_NE(resolved_yaml(resolved).find("# override"), std::string::npos);
}

TEST(Recipe, CanBeReadAgainAlsoWhereADefaultWouldContradict) {
  const std::vector<std::vector<std::string>> recipes = {{"draft.method=dflash"},
                                                         {"schedule.warmup_steps=5"},
                                                         {"draft.markov=none", "draft.confidence=false"},
                                                         {"data.validation_rows=4", "validation.every=10"},
                                                         {"schedule.epochs=null", "schedule.time_budget_s=60"}};
  for (const auto& overrides : recipes) {
    const ResolvedRecipe resolved = parse_recipe(kSmall, "r.yaml", overrides);
    const ResolvedRecipe again = parse_recipe(resolved_yaml(resolved), "again.yaml");
    for (const Key& key : schema()) {
      EXPECT_EQ(value_json(key, again.recipe), value_json(key, resolved.recipe)) << overrides[0] << ": " << key.name;
    }
  }
}

TEST(Recipe, EveryKeyIsReadFromItsOwnPlaceAndItsDefaultIsAllowed) {
  // A key wired to another key's member would change that one instead.
  for (const Key& key : schema()) {
    if (!key.required) {
      const std::string line = (key.section().empty() ? key.leaf() : key.section() + ":\n  " + key.leaf()) + ": ";
      EXPECT_EQ(refusal(line + default_text(key) + "\n").what.find("allowed:"), std::string::npos) << key.name;
    }
    Recipe changed;
    std::visit(
        [&](const auto& member) {
          auto& value = member(changed);
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, bool>)
            value = !value;
          else if constexpr (std::is_same_v<T, std::string>)
            value += "x";
          else if constexpr (std::is_arithmetic_v<T>)
            value += 1;
          else if constexpr (std::is_same_v<T, std::optional<std::string>>)
            value = "x";
          else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
            value = {1};
          else if constexpr (std::is_same_v<T, std::map<std::string, double>>)
            value = {{"x", 1.0}};
          else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>)
            value = {{"x", "muon"}};
          else
            value = 1;
        },
        key.slot);
    for (const Key& other : schema()) {
      EXPECT_EQ(value_json(other, changed) == value_json(other, Recipe{}), other.name != key.name)
          << key.name << " and " << other.name;
    }
  }
}

TEST(Recipe, ARecipeMadeInCodePassesTheSameChecks) {
  Recipe recipe;
  recipe.model.target = "t";
  recipe.data.train = "r";
  EXPECT_THROW(resolve(recipe, "quickstart"), Error);
  recipe.schedule.steps = 5;
  EXPECT_EQ(resolve(recipe, "quickstart").origins.at("schedule.steps"), "quickstart");
  EXPECT_EQ(resolve(recipe, "quickstart").origins.at("schedule.shape"), "default");
}

TEST(Recipe, EveryShippedRecipeIsValid) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_NO_THROW(read_recipe(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 3u);
}

TEST(Recipe, AMissingFileIsAMistakeOfUse) {
  try {
    read_recipe("/no/such/recipe.yaml");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("/no/such/recipe.yaml"), std::string::npos);
  }
}

TEST(Schema, TheDocumentationShowsItAsItIs) {
  std::ifstream file(test::source_dir() / "docs" / "recipes.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // After a change of the schema: pacer config schema --markdown, between the two markers of the page.
  EXPECT_NE(page.find("<!-- schema begins -->\n" + schema_markdown() + "<!-- schema ends -->"), std::string::npos);
}

TEST(Schema, AsJsonCarriesRangesAndDefaults) {
  const OrderedJson json = schema_json();
  EXPECT_EQ(json["keys"].size(), schema().size());
  for (const auto& entry : json["keys"]) {
    if (entry["key"] != "optimizer.learning_rate") continue;
    EXPECT_EQ(entry["exclusive_minimum"], 0.0);
    EXPECT_EQ(entry["maximum"], 1.0);
    EXPECT_EQ(entry["default"], Recipe{}.optimizer.learning_rate);
  }
}

}  // namespace
}  // namespace pacer::train
