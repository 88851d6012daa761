// What one key of a recipe forbids another.
#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/draft/block_plan.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/schema.h"

namespace pacer::train {
namespace {

struct Checker {
  const ResolvedRecipe& resolved;

  // "recipe.yaml:3:5: draft.markov ..." when someone wrote the key, else just the key.
  std::string where(const std::string& key) const {
    const std::string& origin = resolved.origins.at(key);
    return origin == "default" || origin == "override" ? origin + " " + key : origin + ": " + key;
  }

  [[noreturn]] void conflict(const std::string& first, const std::string& what, const std::string& second,
                             const std::string& hint) const {
    const std::string& origin = resolved.origins.at(second);
    const std::string other = second + (origin == "default" ? "" : " (" + origin + ")");
    throw Error(ErrorKind::usage, where(first) + " " + what + " " + other, hint);
  }

  bool given(const std::string& key) const { return resolved.origins.at(key) != "default"; }
};

void check_draft(const Checker& check) {
  const DraftSection& draft = check.resolved.recipe.draft;
  if (draft.method == "dflash") {
    if (check.given("draft.markov") && draft.markov != "none") {
      check.conflict("draft.markov", "is '" + draft.markov + "' and cannot go with method 'dflash' of", "draft.method",
                     "DFlash has no Markov head: leave the key out, or train dspark");
    }
    if (check.given("draft.confidence") && draft.confidence) {
      check.conflict("draft.confidence", "is true and cannot go with method 'dflash' of", "draft.method",
                     "DFlash has no confidence head: leave the key out, or train dspark");
    }
  } else {
    if (!draft.sample_from_anchor) {
      check.conflict("draft.sample_from_anchor", "is false and cannot go with method 'dspark' of", "draft.method",
                     "the Markov head starts from the anchor; only DFlash knows the other reading");
    }
    if (draft.markov == "none" && check.given("draft.markov_rank")) {
      check.conflict("draft.markov_rank", "is given and cannot go with 'none' of", "draft.markov", "leave one out");
    }
    if (draft.markov == "none" && draft.confidence && draft.confidence_with_markov &&
        check.given("draft.confidence_with_markov")) {
      check.conflict("draft.confidence_with_markov", "needs a Markov head, and there is 'none' in", "draft.markov",
                     "set it to false");
    }
  }
  if (!std::ranges::is_sorted(draft.taps) || std::ranges::adjacent_find(draft.taps) != draft.taps.end()) {
    check.conflict("draft.taps", "must be ascending without repetition, for", "draft.method",
                   "the order of the taps is the order of the feature's columns");
  }
  if (!draft.sliding_window.empty() && static_cast<int64_t>(draft.sliding_window.size()) != draft.layers) {
    check.conflict("draft.sliding_window",
                   "has " + std::to_string(draft.sliding_window.size()) + " entries for the " +
                       std::to_string(draft.layers) + " of",
                   "draft.layers", "one window per layer");
  }
}

// Keys that the method does not read are refused: whoever wrote one expects it to do something.
void check_method(const Checker& check) {
  const Recipe& recipe = check.resolved.recipe;
  const bool language_model = recipe.method == "causal_lm";
  for (const Key& key : schema()) {
    if (!check.given(key.name)) continue;
    const std::string section = key.section();
    const bool of_drafts =
        section == "draft" || section == "features" || section == "loss" || key.name == "data.train" ||
        key.name == "data.validation" || key.name == "data.validation_rows" || key.name == "data.max_length" ||
        key.name == "data.anchors" || key.name == "data.anchors_at_once" || key.name == "checkpoint.keep_best" ||
        key.name == "schedule.time_budget_s" || key.name == "schedule.budget_clock";
    if (language_model ? !of_drafts : section != "language_model") continue;
    if (value_json(key, recipe) == value_json(key, Recipe{})) continue;  // as a resolved recipe spells out
    check.conflict(key.name, "is nothing that is read with '" + recipe.method + "' of", "method",
                   "leave the key out, or choose the other method");
  }
  if (!language_model) return;
  const LanguageModelSection& section = recipe.language_model;
  if (!section.text) {
    check.conflict("language_model.text", "is missing and needed with 'causal_lm' of", "method",
                   "the path of a text file to learn");
  }
  if (section.hidden % section.heads != 0 || section.hidden / section.heads % 2 != 0) {
    check.conflict("language_model.hidden", "is no even multiple of", "language_model.heads",
                   "every head has the same, even number of elements");
  }
  if (section.heads % section.kv_heads != 0) {
    check.conflict("language_model.heads", "is no multiple of", "language_model.kv_heads",
                   "every head of keys and values serves the same number of heads");
  }
}

void check_optimizer(const Checker& check) {
  const OptimizerSection& optimizer = check.resolved.recipe.optimizer;
  const bool muon = optimizer.matrix == "muon" ||
                    std::ranges::any_of(optimizer.routes, [](const auto& route) { return route.second == "muon"; });
  if (!muon) {
    for (const char* key :
         {"optimizer.matrix_learning_rate", "optimizer.matrix_weight_decay", "optimizer.momentum", "optimizer.nesterov",
          "optimizer.momentum_dtype", "optimizer.update_scale", "optimizer.newton_schulz",
          "optimizer.newton_schulz_dtype", "optimizer.coefficients", "optimizer.restarts"}) {
      if (check.given(key)) {
        check.conflict(key, "is a setting of Muon, which nothing takes: 'adamw' in", "optimizer.matrix",
                       "set optimizer.matrix to muon, or leave the key out");
      }
    }
    return;
  }
  const std::vector<int64_t>& restarts = optimizer.restarts;
  if (!std::ranges::is_sorted(restarts) || std::ranges::adjacent_find(restarts) != restarts.end()) {
    check.conflict("optimizer.restarts", "must be ascending without repetition, for", "optimizer.newton_schulz",
                   "they are iterations in the order in which they happen");
  }
  if (optimizer.newton_schulz != "direct" && optimizer.newton_schulz_dtype == "bf16" && restarts.empty()) {
    check.conflict("optimizer.restarts", "is empty and cannot go with 'bf16' of", "optimizer.newton_schulz_dtype",
                   "the iteration would diverge on badly conditioned matrices: keep a restart, or store in f32");
  }
}

void check_loss(const Checker& check) {
  const Recipe& recipe = check.resolved.recipe;
  if (recipe.loss.ce == 0 && recipe.loss.l1 == 0) {
    check.conflict("loss.ce", "is 0 together with", "loss.l1", "nothing would be learnt: set one of them above 0");
  }
  if (recipe.loss.weights != "decay" && recipe.draft.method != "dflash") {
    check.conflict("loss.weights", "is '" + recipe.loss.weights + "' and needs method 'dflash' in", "draft.method",
                   "D-PACE weighs by the draft's cross-entropy alone");
  }
  if (recipe.loss.renormalised_teacher && recipe.draft.vocabulary == 0) {
    check.conflict("loss.renormalised_teacher", "needs a reduced", "draft.vocabulary",
                   "over the whole vocabulary there is nothing to renormalise");
  }
}

void check_schedule_keys(const Checker& check) {
  const ScheduleSection& schedule = check.resolved.recipe.schedule;
  std::vector<std::string> given;
  if (schedule.steps) given.push_back("schedule.steps");
  if (schedule.epochs) given.push_back("schedule.epochs");
  if (schedule.time_budget_s) given.push_back("schedule.time_budget_s");
  if (given.empty()) {
    throw Error(ErrorKind::usage,
                "the recipe does not say how long to train: set one of schedule.steps, schedule.epochs, "
                "schedule.time_budget_s",
                "for example schedule.epochs=3");
  }
  if (given.size() > 1) {
    check.conflict(given[1], "contradicts", given[0],
                   "only one of them decides how long to train; take the other away with " + given[0] + "=null");
  }
  if (schedule.warmup_steps && check.given("schedule.warmup_ratio")) {
    check.conflict("schedule.warmup_ratio", "contradicts", "schedule.warmup_steps",
                   "keep one; take the other away with schedule.warmup_steps=null");
  }
  if (schedule.steps && schedule.warmup_steps && *schedule.warmup_steps >= *schedule.steps) {
    check.conflict("schedule.warmup_steps",
                   "is " + std::to_string(*schedule.warmup_steps) + " and must be below the " +
                       std::to_string(*schedule.steps) + " of",
                   "schedule.steps", "shorten the warm-up or train for longer");
  }
}

void check_parallel(const Checker& check) {
  const Recipe& recipe = check.resolved.recipe;
  const ParallelSection& parallel = recipe.parallel;
  if (!parallel.wanted()) {
    for (const Key& key : schema()) {
      if (key.section() != "parallel" || value_json(key, recipe) == value_json(key, Recipe{})) continue;
      check.conflict(key.name, "is given without", "parallel.replicate",
                     "say on how many ranks: parallel.replicate=2 with pacer launch -n 2");
    }
    return;
  }
  if (parallel.exact && recipe.threads > 1) {
    check.conflict("parallel.exact", "needs one thread and there are " + std::to_string(recipe.threads) + " in",
                   "threads", "sums inside of operators depend on threads: leave the key out, or set it to 1");
  }
  const int64_t at_once = recipe.data.anchors_at_once, exact_part = draft::LossOptions::kExactPart;
  if (parallel.exact && at_once > 0 && at_once < exact_part) {
    check.conflict("data.anchors_at_once",
                   "is below the " + std::to_string(exact_part) + " blocks whose gradients are added together with",
                   "parallel.exact", "0, or at least " + std::to_string(exact_part));
  }
  if (parallel.exact && parallel.message_dtype != "f32") {
    check.conflict("parallel.exact", "is true and cannot go with '" + parallel.message_dtype + "' of",
                   "parallel.message_dtype", "exact sums are sums of f32");
  }
}

void check_data(const Checker& check) {
  const Recipe& recipe = check.resolved.recipe;
  if (recipe.data.validation && recipe.data.validation_rows > 0) {
    check.conflict("data.validation_rows", "contradicts", "data.validation",
                   "either a file of its own or rows held out from the training file");
  }
  const bool validates = recipe.method == "causal_lm" ? recipe.language_model.held_out > 0
                                                      : recipe.data.validation || recipe.data.validation_rows > 0;
  if (!validates && check.given("validation.every") && recipe.validation.every > 0) {
    check.conflict("validation.every", "is given, but there are no validation rows in", "data.validation",
                   "set data.validation or data.validation_rows");
  }
  if (recipe.data.max_length <= recipe.draft.block_size) {
    check.conflict("data.max_length", "is not above the block of", "draft.block_size",
                   "a row must hold at least one block");
  }
}

}  // namespace

void check_recipe(const ResolvedRecipe& resolved) {
  const Checker check{resolved};
  check_method(check);
  check_draft(check);
  check_optimizer(check);
  check_loss(check);
  check_schedule_keys(check);
  check_data(check);
  check_parallel(check);
}

}  // namespace pacer::train
