#include "pacer/eval/summary.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "pacer/base/error.h"

namespace pacer::eval {
namespace {

RunFigures figures(int64_t tokens, double cpu, std::vector<int64_t> accepted = {}) {
  RunFigures made;
  made.new_tokens = tokens;
  made.times.verify = {cpu, 2.0 * cpu};
  for (const int64_t a : accepted) {
    decode::RoundRecord round;
    round.proposed = 3;
    round.accepted = round.accepted_raw = a;
    made.counts.add(round);
  }
  return made;
}

TurnResult turn(const std::string& id, double plain_cpu, double fast_cpu, std::vector<int64_t> accepted,
                std::optional<bool> identical) {
  TurnResult made;
  made.id = id;
  made.prompt_tokens = 10;
  made.plain = figures(20, plain_cpu);
  made.speculative = Comparison{figures(20, fast_cpu, std::move(accepted)), identical, {}};
  return made;
}

std::vector<TaskResult> results() {
  return {{"b", {turn("b-0", 4.0, 1.0, {3, 1}, true), turn("b-1", 2.0, 2.0, {0}, true)}},
          {"a", {turn("a-0", 3.0, 2.0, {2, 2, 2}, true)}}};
}

TEST(SpeedUp, IsTheQuotientOfTheSumsAndNotTheMeanOfQuotients) {
  const SpeedUp found = speed_up({4.0, 2.0, 3.0}, {1.0, 2.0, 2.0});
  EXPECT_DOUBLE_EQ(found.value, 9.0 / 5.0);
  EXPECT_DOUBLE_EQ(found.smallest, 1.0);
  EXPECT_DOUBLE_EQ(found.median, 1.5);
  EXPECT_DOUBLE_EQ(found.largest, 4.0);
  EXPECT_LT(found.low, found.value);
  EXPECT_GT(found.high, found.value);
  EXPECT_GE(found.low, 1.0);
  EXPECT_LE(found.high, 4.0);
}

TEST(SpeedUp, SpreadShrinksWithTheNumberOfTexts) {
  std::vector<double> plain, fast;
  for (int i = 0; i < 400; ++i) plain.push_back(2.0), fast.push_back(i % 2 ? 1.5 : 0.5);
  const SpeedUp many = speed_up(plain, fast);
  plain.resize(10), fast.resize(10);
  const SpeedUp few = speed_up(plain, fast);
  EXPECT_DOUBLE_EQ(many.value, few.value);
  EXPECT_LT(many.high - many.low, 0.3 * (few.high - few.low));
  // Two coins of equal chance: the interval of the mean is known, 1 +- 1.645 * 0.5 / sqrt(400)
  EXPECT_NEAR(2.0 / many.low, 1.0 + 1.645 * 0.5 / 20.0, 0.006);
}

TEST(SpeedUp, OneTextHasNoSpread) {
  const SpeedUp found = speed_up({3.0}, {2.0});
  EXPECT_DOUBLE_EQ(found.low, 1.5);
  EXPECT_DOUBLE_EQ(found.high, 1.5);
  EXPECT_THROW(speed_up({}, {}), Error);
  EXPECT_THROW(speed_up({1.0}, {1.0, 2.0}), Error);
}

TEST(Summarise, AddsCountsAndSecondsOverTasks) {
  const Summary summary = summarise(results());
  EXPECT_EQ(summary.prompts, 3);
  EXPECT_EQ(summary.turns, 3);
  EXPECT_EQ(summary.prompt_tokens, 30);
  EXPECT_EQ(summary.plain.new_tokens, 60);
  ASSERT_TRUE(summary.speculative);
  EXPECT_FALSE(summary.lookup);
  EXPECT_DOUBLE_EQ(summary.speculative->cpu->value, 9.0 / 5.0);
  EXPECT_DOUBLE_EQ(summary.speculative->wall->value, 9.0 / 5.0);
  EXPECT_DOUBLE_EQ(*summary.speculative->counts.acceptance_length(), 16.0 / 6.0);
  EXPECT_DOUBLE_EQ(*summary.speculative->mean_acceptance_length, (3.0 + 1.0 + 3.0) / 3.0);
  EXPECT_EQ(summary.speculative->identical, true);
}

TEST(Summarise, DoesNotDependOnTheOrder) {
  std::vector<TaskResult> reversed = results();
  std::reverse(reversed.begin(), reversed.end());
  for (TaskResult& task : reversed) std::reverse(task.turns.begin(), task.turns.end());
  const SpeedUp one = *summarise(results()).speculative->cpu, other = *summarise(reversed).speculative->cpu;
  EXPECT_EQ(one.value, other.value);
  EXPECT_EQ(one.low, other.low);
  EXPECT_EQ(one.high, other.high);
}

TEST(Summarise, OneDifferingTextMakesTheWholeNotIdentical) {
  std::vector<TaskResult> tasks = results();
  tasks[0].turns[1].speculative->identical = false;
  const Summary summary = summarise(tasks);
  EXPECT_EQ(summary.speculative->identical, false);
  EXPECT_EQ(summary.speculative->differing, std::vector<std::string>{"b-1"});
}

TEST(ResultJson, HoldsEveryFigureThatReportsRead) {
  std::vector<TaskResult> tasks = results();
  tasks[0].turns[1].speculative->identical = false;
  tasks[0].turns[1].speculative->difference = Difference{5, 7, 8, 0.25, 0.25};
  const OrderedJson json = result_json({"model", "draft", "dspark", "bf16", 2}, MeasureOptions(), tasks);
  EXPECT_EQ(json["schema"], "pacer.evaluation/1");
  EXPECT_EQ(json["draft"]["method"], "dspark");
  const OrderedJson& task = json["tasks"]["b"];
  EXPECT_EQ(task["turns"], 2);
  EXPECT_DOUBLE_EQ(task["speculative"]["speedup_cpu"].get<double>(), 2.0);
  EXPECT_EQ(task["speculative"]["identical"], false);
  EXPECT_DOUBLE_EQ(task["speculative"]["acceptance_length"].get<double>(), 7.0 / 3.0);
  EXPECT_EQ(task["speculative"]["acceptance"]["accepted_at"], OrderedJson({2, 1, 1}));
  EXPECT_DOUBLE_EQ(task["speculative"]["time"]["verify"]["wall_s"].get<double>(), 6.0);
  EXPECT_DOUBLE_EQ(task["plain"]["tokens_per_cpu_s"].get<double>(), 40.0 / 6.0);
  EXPECT_TRUE(task["lookup"].is_null());
  EXPECT_TRUE(task["calibration"].is_null());
  EXPECT_EQ(task["results"][1]["speculative"]["difference"]["margin"], 0.25);
  EXPECT_FALSE(task["results"][0]["speculative"].contains("difference"));
  EXPECT_DOUBLE_EQ(json["total"]["speculative"]["speedup_cpu"].get<double>(), 9.0 / 5.0);
}

TEST(ResultTable, HasALinePerTaskAndOneForAll) {
  const std::string table = result_table(results());
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);
  EXPECT_NE(table.find("2.67"), std::string::npos);  // acceptance length over both
  EXPECT_NE(table.find("1.80"), std::string::npos);  // speed-up over both
}

}  // namespace
}  // namespace pacer::eval
