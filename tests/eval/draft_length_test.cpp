#include "pacer/eval/draft_length.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "tests/decode/toy.h"
#include "tests/eval/toy_words.h"

namespace pacer::eval {
namespace {

// Texts of one way: `rounds` of K drafts that survive as geometric(acceptance) says on the average, and their seconds.
std::vector<TaskResult> rigged(int64_t k, double acceptance, double plain_step, double propose, double verify) {
  TurnResult turn;
  turn.id = "rigged";
  const int64_t rounds = 1000;
  RunFigures fast;
  double reached = 1.0;
  fast.counts.samples = 1;
  fast.counts.rounds = rounds;
  fast.counts.proposed = rounds * k;
  fast.counts.kept = rounds;
  for (int64_t slot = 0; slot < k; ++slot) {
    fast.counts.proposed_at.push_back(rounds);
    reached *= acceptance;
    fast.counts.accepted_at.push_back(std::llround(reached * static_cast<double>(rounds)));
    fast.counts.reached_at.push_back(slot == 0 ? rounds : fast.counts.accepted_at[static_cast<size_t>(slot) - 1]);
    fast.counts.kept += fast.counts.accepted_at.back();
  }
  fast.new_tokens = fast.counts.kept + 1;
  fast.times.draft.cpu = propose * static_cast<double>(rounds);
  fast.times.verify.cpu = verify * static_cast<double>(rounds);
  turn.plain.new_tokens = fast.new_tokens;
  turn.plain.times.verify.cpu = plain_step * static_cast<double>(fast.counts.kept);
  turn.speculative = Comparison{fast, true, {}};
  return {{"task", {turn}}};
}

TEST(DraftLength, OfSeveralRunsTheLongestAdvises) {
  const LengthRun one{1, rigged(1, 0.9, 1.0, 0.1, 1.2)}, eight{8, rigged(8, 0.9, 1.0, 0.1, 1.2)};
  for (const std::vector<LengthRun>& runs : {std::vector{one, eight}, std::vector{eight, one}}) {
    const auto advice = advise_length(runs);
    ASSERT_TRUE(advice);
    EXPECT_EQ(advice->lengths.size(), 9u);
    EXPECT_GT(advice->best.drafts, 1);
  }
  EXPECT_FALSE(advise_length(std::vector<LengthRun>{}));
}

TEST(DraftLength, Report110SaysWhenNoLengthPays) {
  // A draft that is right nine times in ten and as dear as five plain steps, on a target to which rows are not cheap.
  const auto advice = advise_length(summarise(rigged(8, 0.9, 1.0, 5.0, 4.0)));
  ASSERT_TRUE(advice);
  EXPECT_EQ(advice->best.drafts, 0);
  EXPECT_NE(advice_text(*advice).find("no gain expected"), std::string::npos);
  EXPECT_EQ(advice_json(*advice)["drafts"], 0);
}

TEST(DraftLength, TheBestLengthFollowsFromCostsAndSurvival) {
  for (const double acceptance : {0.4, 0.7, 0.95}) {
    for (const double verify : {1.05, 1.6, 3.0}) {
      const double propose = 0.2;
      const auto advice = advise_length(summarise(rigged(8, acceptance, 1.0, propose, verify)));
      ASSERT_TRUE(advice);
      ASSERT_EQ(advice->lengths.size(), 9u);
      int64_t best = 0;
      double most = 1.0, expected = 1.0, survival = 1.0;
      for (int64_t n = 1; n <= 8; ++n) {
        survival *= acceptance, expected += survival;
        const double speed = expected / (1.0 + (verify - 1.0) * static_cast<double>(n) / 8.0 + propose);
        EXPECT_NEAR(advice->lengths[static_cast<size_t>(n)].speed_up, speed, 5e-3) << acceptance << " " << n;
        if (speed > most) most = speed, best = n;
      }
      EXPECT_NEAR(static_cast<double>(advice->best.drafts), static_cast<double>(best), 1.0);
      EXPECT_NEAR(advice->best.speed_up, most, 5e-3);
    }
  }
}

TEST(DraftLength, WithoutADraftThereIsNothingToSay) {
  std::vector<TaskResult> tasks = rigged(4, 0.5, 1.0, 0.1, 1.1);
  tasks[0].turns[0].speculative.reset();
  EXPECT_FALSE(advise_length(summarise(tasks)));
}

constexpr int64_t kVocab = 12;

TEST(DraftLength, Report92ShorterIsMeasuredAndLongerThanTrainedIsRefused) {
  const test::ToyTarget target(kVocab, 3, 2.0);
  const at::Tensor mean = target.table().view({kVocab, kVocab, kVocab}).mean(0);
  test::ToyProposer draft("toy", 5, [=](int64_t, int64_t previous, int64_t) { return mean[previous]; }, {});
  MeasureOptions options;
  options.sampling.max_new_tokens = 40;
  options.lookup = false;
  std::vector<LengthRun> runs;
  for (options.most_drafts = 1; options.most_drafts <= 5; ++options.most_drafts) {
    const std::vector<Task> tasks = {test::toy_task("first", {{"abc"}, {"de"}})};
    runs.push_back({options.most_drafts, measure(target, &draft, tasks, test::toy_words(kVocab), options)});
    const Summary summary = summarise(runs.back().tasks);
    EXPECT_EQ(summary.speculative->identical, true);
    EXPECT_EQ(summary.speculative->counts.proposed_at.size(), static_cast<size_t>(options.most_drafts));
  }
  const OrderedJson json = length_runs_json(runs);
  ASSERT_EQ(json.size(), 5u);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_GE(json[i]["acceptance_length"].get<double>(), json[i - 1]["acceptance_length"].get<double>());
  }
  EXPECT_GT(json[4]["acceptance_length"].get<double>(), json[0]["acceptance_length"].get<double>());
  EXPECT_NE(length_runs_table(runs).find("drafts a round"), std::string::npos);

  try {
    measure(target, &draft, {test::toy_task("first", {{"abc"}})}, test::toy_words(kVocab), options);  // six
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("trained to propose 5"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pacer::eval
