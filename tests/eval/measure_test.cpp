#include "pacer/eval/measure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <gmock/gmock.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/eval/summary.h"
#include "tests/decode/toy.h"
#include "tests/eval/toy_words.h"
#include "tests/support/files.h"

namespace pacer::eval {
namespace {

constexpr int64_t kVocab = 12;

const test::ToyTarget& toy_target() {
  static const test::ToyTarget target(kVocab, 3, 2.0);
  return target;
}

test::ToyProposer toy_draft(test::ToyProposer::Confidence confidence = {}) {
  const at::Tensor mean = toy_target().table().view({kVocab, kVocab, kVocab}).mean(0);
  return {"toy", 4, [=](int64_t, int64_t previous, int64_t) { return mean[previous]; }, std::move(confidence)};
}

std::vector<Task> toy_tasks() {
  return {test::toy_task("first", {{"abc"}, {"de", "fg"}, {"hijk"}}), test::toy_task("second", {{"cab"}, {"bead"}})};
}

MeasureOptions options_of(double temperature = 0.0) {
  MeasureOptions options;
  options.sampling.temperature = temperature;
  options.sampling.max_new_tokens = 30;
  options.sampling.seed = 2;
  return options;
}

std::vector<TaskResult> run(const MeasureOptions& options, std::vector<Task> tasks = toy_tasks()) {
  test::ToyProposer draft = toy_draft();
  return measure(toy_target(), &draft, tasks, test::toy_words(kVocab), options);
}

TEST(Measure, BothTextsAreTheTargetsAndTheirCountsAreThoseOfTheText) {
  for (const TaskResult& task : run(options_of())) {
    for (const TurnResult& turn : task.turns) {
      ASSERT_TRUE(turn.speculative && turn.lookup);
      EXPECT_EQ(turn.speculative->identical, true);
      EXPECT_EQ(turn.lookup->identical, true);
      EXPECT_EQ(turn.plain.new_tokens, 30);
      EXPECT_EQ(turn.plain.counts.rounds, 0);
      EXPECT_EQ(turn.speculative->figures.counts.kept, 29);
      EXPECT_LT(turn.speculative->figures.counts.rounds, 29);
      EXPECT_GT(turn.plain.times.total().wall, 0.0);
    }
  }
}

// A wrong rule: the token behind the accepted drafts is read one row too far.
decode::Verification off_by_one(const decode::TargetRows& target, const draft::Proposal& proposal,
                                const decode::VerifyDraws& draws, std::span<const int64_t> stops) {
  decode::Verification found = decode::verify(target, proposal, draws, stops);
  const auto n = static_cast<int64_t>(proposal.tokens.size());
  if (!found.stopped && found.accepted < n) found.next_token = target.greedy[static_cast<size_t>(found.accepted) + 1];
  return found;
}

TEST(Measure, AnOffByOneInVerificationIsNoticedAndLocated) {
  MeasureOptions options = options_of();
  options.verifier = off_by_one;
  const TurnResult turn = run(options)[0].turns[0];
  EXPECT_EQ(turn.speculative->identical, false);
  ASSERT_TRUE(turn.speculative->difference);
  const Difference& difference = *turn.speculative->difference;

  // The margins are those of the target's logits where the texts part.
  std::vector<int64_t> ids = test::toy_words(kVocab).encode({{{"role", "user"}, {"content", "abc"}}}, nullptr);
  const std::vector<int64_t> text = toy_target().greedy(ids, 30);
  ids.insert(ids.end(), text.begin(), text.begin() + difference.position);
  const at::Tensor row = toy_target().table()[ids[ids.size() - 2] * kVocab + ids.back()].clone();
  std::vector<float> logits(row.const_data_ptr<float>(), row.const_data_ptr<float>() + kVocab);
  EXPECT_EQ(difference.plain, text[static_cast<size_t>(difference.position)]);
  EXPECT_NEAR(difference.disagreement,
              logits[static_cast<size_t>(difference.plain)] - logits[static_cast<size_t>(difference.speculative)],
              1e-6);
  std::sort(logits.rbegin(), logits.rend());
  EXPECT_NEAR(difference.margin, logits[0] - logits[1], 1e-6);
}

std::map<std::string, const TurnResult*> by_name(const std::vector<TaskResult>& results) {
  std::map<std::string, const TurnResult*> named;
  for (const TaskResult& task : results) {
    for (const TurnResult& turn : task.turns) {
      named[task.name + "/" + turn.id + "/" + std::to_string(turn.turn)] = &turn;
    }
  }
  return named;
}

TEST(Measure, TextsAndCountsDoNotDependOnTheOrder) {
  for (const double temperature : {0.0, 1.0}) {
    std::vector<Task> tasks = toy_tasks();
    const auto there = run(options_of(temperature), tasks);
    std::reverse(tasks.begin(), tasks.end());
    for (Task& task : tasks) std::reverse(task.prompts.begin(), task.prompts.end());
    const auto back = run(options_of(temperature), tasks);
    const auto first = by_name(there), second = by_name(back);
    ASSERT_EQ(first.size(), 6u);
    ASSERT_EQ(second.size(), 6u);
    for (const auto& [name, turn] : first) {
      const TurnResult& other = *second.at(name);
      EXPECT_EQ(turn->text, other.text) << name;
      EXPECT_EQ(turn->speculative->figures.counts.to_json(), other.speculative->figures.counts.to_json()) << name;
      EXPECT_EQ(turn->lookup->figures.counts.to_json(), other.lookup->figures.counts.to_json()) << name;
    }
  }
}

// Acceptance is what happened while decoding: an answer that stands in the file of prompts is no reference for it.
TEST(Measure, Report99AnAnswerInTheFileChangesNothing) {
  const test::TemporaryFolder folder;
  std::vector<OrderedJson> counts;
  for (const std::string answer : {"", "abcdefghij", "abcdxfghij"}) {
    OrderedJson messages = {{{"role", "user"}, {"content", "abc"}}};
    if (!answer.empty()) messages.push_back({{"role", "assistant"}, {"content", answer}});
    write_file(folder.path() / "task.jsonl", OrderedJson{{"id", "one"}, {"messages", messages}}.dump() + "\n");
    const auto results = run(options_of(), read_tasks({folder.path() / "task.jsonl"}, 0));
    ASSERT_EQ(results[0].turns.size(), 1u);
    EXPECT_EQ(results[0].turns[0].speculative->identical, true);
    counts.push_back(OrderedJson(results[0].turns[0].speculative->figures.counts.to_json()));
  }
  EXPECT_EQ(counts[1], counts[0]);
  EXPECT_EQ(counts[2], counts[0]);
}

TEST(Measure, IdenticalIsNotDefinedWhenSampling) {
  const auto results = run(options_of(1.0));
  EXPECT_FALSE(results[0].turns[0].speculative->identical);
}

TEST(Measure, ASecondTurnSeesThePlainAnswer) {
  const std::vector<TaskResult> results = run(options_of());
  const TurnResult& first = results[0].turns[1];
  const TurnResult& second = results[0].turns[2];
  EXPECT_EQ(first.id, second.id);
  EXPECT_EQ(second.turn, 1);
  EXPECT_EQ(second.prompt_tokens, 2 + 30 + 2);  // question, answer, question
  EXPECT_EQ(second.plain.prompt_known, 2 + 29) << "all of the first turn but its newest token";
  EXPECT_EQ(second.speculative->figures.prompt_known, 2 + 29);
  EXPECT_EQ(summarise(results).prompt_tokens_known,
            2 + 29 + results[0].turns[0].plain.prompt_known + first.plain.prompt_known);
  MeasureOptions options = options_of();
  options.max_turns = 1;
  EXPECT_EQ(run(options)[0].turns.size(), 3u);
}

TEST(Measure, UnderAPaceTheTextIsTheSameAndTheRoundsSayWhoProposed) {
  MeasureOptions options = options_of();
  EXPECT_FALSE(run(options)[0].turns[0].paced) << "off unless asked";
  for (const PaceUse use : {PaceUse::on, PaceUse::only}) {
    options.pace = use;
    for (const TaskResult& task : run(options)) {
      for (const TurnResult& turn : task.turns) {
        EXPECT_EQ(turn.speculative.has_value(), use == PaceUse::on);
        ASSERT_TRUE(turn.paced);
        EXPECT_EQ(turn.paced->identical, true);
        EXPECT_EQ(turn.paced->figures.counts.kept, 29);
      }
    }
  }
  // Nothing is known before the first plain steps of a session, so these are idle; a session is one call.
  const auto results = run(options);
  EXPECT_GE(results[0].turns[0].paced->figures.counts.idle, 2);
  const auto alone = measure(toy_target(), nullptr, toy_tasks(), test::toy_words(kVocab), options);
  EXPECT_TRUE(alone[0].turns[0].paced) << "prompt lookup is paced, too";
}

TEST(Measure, CalibrationComparesTheHeadWithWhatWasAccepted) {
  test::ToyProposer draft = toy_draft([](int64_t, int64_t) { return 0.0f; });
  const auto results = measure(toy_target(), &draft, toy_tasks(), test::toy_words(kVocab), options_of());
  decode::Calibration calibration;
  decode::AcceptanceCounts counts;
  for (const TaskResult& task : results) {
    for (const TurnResult& turn : task.turns) {
      calibration.add(turn.calibration);
      counts.add(turn.speculative->figures.counts);
    }
  }
  const auto positions = calibration.positions();
  ASSERT_EQ(positions.size(), 4u);
  for (size_t k = 0; k < positions.size(); ++k) {
    EXPECT_EQ(positions[k].count, counts.proposed_at[k]);
    EXPECT_NEAR(*positions[k].label_mean, *counts.survival()[k], 1e-12);
    EXPECT_NEAR(*positions[k].prediction_mean, std::pow(0.5, static_cast<double>(k) + 1.0), 1e-12);
  }
  MeasureOptions cut = options_of();
  cut.confidence_threshold = 0.4;
  const auto uncalibrated = measure(toy_target(), &draft, toy_tasks(), test::toy_words(kVocab), cut);
  EXPECT_TRUE(uncalibrated[0].turns[0].calibration.empty());
}

TEST(Measure, WithoutADraftOnlyTheBaselineIsMeasured) {
  const auto results = measure(toy_target(), nullptr, toy_tasks(), test::toy_words(kVocab), options_of());
  EXPECT_FALSE(results[0].turns[0].speculative);
  EXPECT_TRUE(results[0].turns[0].lookup);
}

TEST(Measure, APromptWithoutRoomNamesItselfAndItsTask) {
  std::vector<Task> tasks = toy_tasks();
  tasks[1].prompts[1].turns[0] = std::string(5000, 'a');
  try {
    run(options_of(), tasks);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "task second, prompt second-1: 5000 tokens, the target has positions for 4096");
  }
}

TEST(Measure, ReportsProgressAfterEveryPrompt) {
  MeasureOptions options = options_of();
  std::vector<int64_t> done;
  options.on_progress = [&](const Progress& progress) {
    done.push_back(progress.done);
    EXPECT_EQ(progress.total, 5);
    EXPECT_GT(progress.acceptance_length, 1.0);
  };
  run(options);
  EXPECT_EQ(done, (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST(ReadTasks, NamesATaskByItsFileAndTakesTheFirstPrompts) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "chat.jsonl", R"({"id": "a", "turns": ["one", "two"]})"
                                           "\n"
                                           R"({"id": "b", "messages": [{"role": "user", "content": "three"}]})"
                                           "\n");
  const std::vector<Task> tasks = read_tasks({folder.path() / "chat.jsonl"}, 0);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].name, "chat");
  ASSERT_EQ(tasks[0].prompts.size(), 2u);
  EXPECT_EQ(tasks[0].prompts[0].turns, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(read_tasks({folder.path() / "chat.jsonl"}, 1)[0].prompts.size(), 1u);
  EXPECT_THROW(read_tasks({folder.path() / "chat.jsonl", folder.path() / "chat.jsonl"}, 0), Error);
  EXPECT_THROW(read_tasks({folder.path() / "chat.jsonl"}, -1), Error);
}

TEST(ReadTasks, ASubsetKeepsItsOrderAndEachTaskItsOwnLimit) {
  const test::TemporaryFolder folder;
  const std::string row = R"({"id": "ID", "turns": ["one"]})";
  for (const char* name : {"b", "a", "c"}) {
    std::string text;
    for (int i = 0; i < 4; ++i) text += std::string(row).replace(8, 2, std::to_string(i)) + "\n";
    write_file(folder.path() / (std::string(name) + ".jsonl"), text);
  }
  const auto summary = [](const std::vector<Task>& tasks) {
    std::string text;
    for (const Task& task : tasks) text += task.name + std::to_string(task.prompts.size()) + " ";
    return text;
  };
  const std::string path = folder.path().string();
  EXPECT_EQ(summary(read_tasks({path}, 0)), "a4 b4 c4 ");
  EXPECT_EQ(summary(read_tasks({path + "/c.jsonl:1", path + "/a.jsonl"}, 3)), "c1 a3 ");
  try {
    read_tasks({path + "/d.jsonl:2"}, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("d.jsonl"));
    EXPECT_THAT(error.hint(), ::testing::HasSubstr("a.jsonl, b.jsonl, c.jsonl"));
  }
  EXPECT_THROW(read_tasks({path + "/a.jsonl:0"}, 0), Error);
  std::filesystem::create_directory(folder.path() / "empty");
  EXPECT_THROW(read_tasks({path + "/empty"}, 0), Error);
}

}  // namespace
}  // namespace pacer::eval
