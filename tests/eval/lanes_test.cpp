#include "pacer/eval/lanes.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "tests/decode/toy.h"
#include "tests/eval/toy_words.h"

namespace pacer::eval {
namespace {

constexpr int64_t kVocab = 12;

const test::ToyTarget& toy_target() {
  static const test::ToyTarget target(kVocab, 3, 2.0);
  return target;
}

std::unique_ptr<draft::Proposer> toy_draft() {
  const at::Tensor mean = toy_target().table().view({kVocab, kVocab, kVocab}).mean(0);
  return std::make_unique<test::ToyProposer>("toy", 4,
                                             [=](int64_t, int64_t previous, int64_t) { return mean[previous]; });
}

std::vector<Task> toy_tasks() {
  return {test::toy_task("first", {{"abc"}, {"de", "fg"}, {"hijk"}, {"a"}}), test::toy_task("second", {{"cab"}})};
}

MeasureOptions options_of(double temperature) {
  MeasureOptions options;
  options.sampling.temperature = temperature;
  options.sampling.max_new_tokens = 20;
  return options;
}

TEST(Lanes, TextsAndCountsAreThoseOfOneLane) {
  for (const double temperature : {0.0, 0.9}) {
    MeasureOptions options = options_of(temperature);
    const auto draft = toy_draft();
    const std::vector<TaskResult> expected =
        measure(toy_target(), draft.get(), toy_tasks(), test::toy_words(kVocab), options);
    for (const int lanes : {1, 2, 3, 7}) {
      int64_t done = 0;
      options.on_progress = [&](const Progress& now) {
        EXPECT_TRUE(now.done == done || now.done == done + 1) << now.done << " behind " << done;
        done = now.done;
        EXPECT_EQ(now.total, 5);
      };
      const auto results =
          measure_in_lanes(toy_target(), toy_draft, toy_tasks(), test::toy_words(kVocab), options, lanes);
      EXPECT_EQ(done, 5);
      ASSERT_EQ(results.size(), expected.size());
      for (size_t t = 0; t < results.size(); ++t) {
        EXPECT_EQ(results[t].name, expected[t].name);
        ASSERT_EQ(results[t].turns.size(), expected[t].turns.size()) << lanes << " lanes";
        for (size_t i = 0; i < results[t].turns.size(); ++i) {
          const TurnResult &got = results[t].turns[i], &wanted = expected[t].turns[i];
          EXPECT_EQ(got.id, wanted.id);
          EXPECT_EQ(got.turn, wanted.turn);
          EXPECT_EQ(got.text, wanted.text);
          EXPECT_EQ(got.plain.finish, wanted.plain.finish);
          EXPECT_EQ(got.plain.new_tokens, wanted.plain.new_tokens);
          EXPECT_EQ(got.plain.times.total().wall, 0) << "written beside others";
          EXPECT_EQ(got.speculative->identical, wanted.speculative->identical);
          EXPECT_EQ(got.speculative->figures.counts.rounds, wanted.speculative->figures.counts.rounds);
          EXPECT_EQ(got.speculative->figures.counts.kept, wanted.speculative->figures.counts.kept);
        }
      }
      options.on_progress = nullptr;
    }
  }
}

TEST(Lanes, ATextThatDiffersIsFound) {
  MeasureOptions options = options_of(0.0);
  // A wrong rule: the first draft is always right.
  options.verifier = [](const decode::TargetRows& target, const draft::Proposal& proposal,
                        const decode::VerifyDraws& draws, std::span<const int64_t> stops) {
    decode::TargetRows wrong = target;
    if (!proposal.tokens.empty()) wrong.greedy[0] = proposal.tokens[0];
    return decode::verify(wrong, proposal, draws, stops);
  };
  const auto results = measure_in_lanes(toy_target(), toy_draft, toy_tasks(), test::toy_words(kVocab), options, 2);
  EXPECT_EQ(results[0].turns[0].speculative->identical, false);
  EXPECT_TRUE(results[0].turns[0].speculative->difference.has_value());
}

TEST(Lanes, WhatOneLaneThrowsEndsAll) {
  MeasureOptions options = options_of(0.0);
  options.on_progress = [](const Progress& now) {
    if (now.done == 2) throw std::runtime_error("stop here");
  };
  EXPECT_THROW(measure_in_lanes(toy_target(), toy_draft, toy_tasks(), test::toy_words(kVocab), options, 2),
               std::runtime_error);
}

TEST(Lanes, NoPacingRuleAndAtLeastOneLane) {
  MeasureOptions options = options_of(0.0);
  EXPECT_THROW(measure_in_lanes(toy_target(), toy_draft, toy_tasks(), test::toy_words(kVocab), options, 0), Error);
  options.pace = PaceUse::on;
  EXPECT_THROW(measure_in_lanes(toy_target(), toy_draft, toy_tasks(), test::toy_words(kVocab), options, 2), Error);
}

}  // namespace
}  // namespace pacer::eval
