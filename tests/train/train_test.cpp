// Whole runs on a tiny target: what they write, and that an interruption changes nothing.
#include "pacer/train/train.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/base/random.h"
#include "pacer/draft/config.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/run_folder.h"
#include "tests/support/files.h"
#include "tests/train/tiny.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

TrainResult run(const Recipe& recipe, const fs::path& folder, int64_t stop_after = 0) {
  int64_t steps = 0;
  TrainOptions options;
  options.run = folder;
  options.command = {"test"};
  options.stop_requested = [&steps, stop_after] { return ++steps == stop_after; };
  return train(resolve(recipe, "test"), options);
}

std::vector<Json> records(const fs::path& folder, const std::string& kind) {
  std::vector<Json> found;
  std::ifstream in(folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    Json record = Json::parse(line);
    if (record["kind"] != kind) continue;
    for (const char* time : {"wall_s", "cpu_s", "target_cpu_s"}) record.erase(time);
    found.push_back(std::move(record));
  }
  return found;
}

// Everything that a checkpoint holds, manifest included: byte for byte.
void expect_same_checkpoint(const fs::path& a, const fs::path& b) {
  for (const char* name : {"config.json", "model.safetensors", "optimizer.safetensors", "generator.safetensors",
                           "state.json", "manifest.json"}) {
    EXPECT_EQ(crc32c(MappedFile::open(a / name)->bytes()), crc32c(MappedFile::open(b / name)->bytes())) << name;
    EXPECT_EQ(fs::file_size(a / name), fs::file_size(b / name)) << name;
  }
}

Recipe checked_recipe(const fs::path& folder) {
  Recipe recipe = test::tiny_recipe(folder);
  recipe.schedule.warmup_steps = 2;
  recipe.data.validation_rows = 6;
  recipe.validation.every = 4;
  recipe.checkpoint.every = 4;
  return recipe;
}

std::string refusal(const Recipe& recipe, const fs::path& folder, ErrorKind kind) {
  try {
    run(recipe, folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "accepted";
}

TEST(Train, LearnsAndLeavesACompleteFolder) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = checked_recipe(temporary.path());
  recipe.schedule.steps = 80;
  recipe.validation.every = 20;
  const fs::path folder = temporary.path() / "run";
  const TrainResult result = run(recipe, folder);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.step, 80);
  EXPECT_LT(*result.last_loss, 0.9 * *result.first_loss);
  EXPECT_EQ(result.rows, 80 * 3);
  EXPECT_EQ(result.draft, best_draft(folder));

  const auto train = records(folder, "train"), validation = records(folder, "validation");
  ASSERT_EQ(train.size(), 20u);
  ASSERT_EQ(validation.size(), 5u);  // before the first step, and every 20
  EXPECT_EQ(validation[0]["step"], 0);
  EXPECT_GT(result.best_tau, validation[0]["tau"].get<double>());
  EXPECT_EQ(validation[0]["accept"].size(), 4u);
  for (const char* field : {"loss", "ce", "l1", "confidence", "tau", "learning_rate", "gradient_norm", "epoch"}) {
    EXPECT_TRUE(train[0].contains(field)) << field;
  }
  EXPECT_EQ(records(folder, "end").size(), 1u);
  EXPECT_FALSE(fs::is_empty(folder / "tensorboard"));
  EXPECT_EQ(read_json(folder / "environment.json")["command"], Json::array({"test"}));
  EXPECT_EQ(read_json(folder / "plan.json")["steps"], 80);
  EXPECT_EQ(recipe_of_run(folder).recipe.schedule.steps, 80);
  const draft::DraftConfig draft =
      draft::DraftConfig::from_json(read_json(result.draft / "config.json"), "config.json");
  EXPECT_EQ(draft.block_size, 4);
}

Recipe muon_recipe(const fs::path& folder) {
  Recipe recipe = checked_recipe(folder);
  recipe.optimizer.matrix = "muon";
  recipe.optimizer.routes = {{"fc.weight", "adamw"}};
  return recipe;
}

TEST(TrainWithMuon, StoppedAndContinuedEndsWithTheSameBits) {
  const pacer::test::TemporaryFolder temporary;
  const Recipe recipe = muon_recipe(temporary.path());
  const TrainResult whole = run(recipe, temporary.path() / "whole");
  const fs::path folder = temporary.path() / "parts";
  EXPECT_EQ(run(recipe, folder, /*stop_after=*/5).step, 5);
  TrainOptions options;
  options.run = folder;
  const TrainResult finished = train(recipe_of_run(folder), options);
  EXPECT_TRUE(finished.finished);
  expect_same_checkpoint(whole.checkpoint, finished.checkpoint);
  EXPECT_EQ(records(folder, "train"), records(temporary.path() / "whole", "train"));
}

TEST(TrainWithMuon, LearnsAndSaysWhichParameterTookWhichRoute) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = muon_recipe(temporary.path());
  recipe.schedule.steps = 60;
  const fs::path folder = temporary.path() / "run";
  const TrainResult result = run(recipe, folder);
  EXPECT_LT(*result.last_loss, 0.9 * *result.first_loss);
  const auto state = pacer::formats::SafetensorsFile::open(result.checkpoint / "optimizer.safetensors");
  std::istringstream page(read_file(folder / "parameters.txt"));
  int64_t parameters = 0, muon = 0;
  for (std::string line; std::getline(page, line); ++parameters) {
    std::istringstream words(line);
    std::string name, shape, route;
    words >> name >> shape >> route;
    EXPECT_EQ(state->has(name + ".momentum_buffer"), route == "muon") << line;
    EXPECT_EQ(state->has(name + ".exp_avg_sq"), route == "adamw") << line;
    EXPECT_TRUE(state->has(name + ".step")) << line;
    EXPECT_EQ(line.find("rule 'fc.weight'") != std::string::npos, name == "fc.weight") << line;
    if (route == "muon") {
      ++muon;
    } else if (shape.find('x') != std::string::npos) {
      EXPECT_NE(line.find("rule '"), std::string::npos) << line;  // no matrix misses Muon without one
    }
  }
  EXPECT_EQ(muon, 7);  // of the one layer: q, k, v, o, gate, up, down
  EXPECT_GT(parameters, muon);
}

TEST(TrainWithMuon, CannotBeContinuedWithAdamW) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = muon_recipe(temporary.path());
  run(recipe, temporary.path() / "run", /*stop_after=*/3);
  recipe.optimizer.matrix = "adamw";
  EXPECT_NE(refusal(recipe, temporary.path() / "run", ErrorKind::usage).find("optimizer.matrix was \"muon\""),
            std::string::npos);
}

TEST(Train, ReturnsAtOnceWhenFinished) {
  const pacer::test::TemporaryFolder temporary;
  const Recipe recipe = test::tiny_recipe(temporary.path());
  const TrainResult first = run(recipe, temporary.path() / "run");
  const auto before = read_file(temporary.path() / "run" / "metrics.jsonl");
  const TrainResult second = run(recipe, temporary.path() / "run");
  EXPECT_EQ(second.checkpoint, first.checkpoint);
  EXPECT_EQ(second.last_loss, first.last_loss);
  EXPECT_EQ(read_file(temporary.path() / "run" / "metrics.jsonl"), before);
}

TEST(Train, StoppedAndContinuedEndsWithTheSameBits) {
  const pacer::test::TemporaryFolder temporary;
  const Recipe recipe = checked_recipe(temporary.path());
  const TrainResult whole = run(recipe, temporary.path() / "whole");
  const fs::path folder = temporary.path() / "parts";
  const TrainResult stopped = run(recipe, folder, /*stop_after=*/5);  // between two checkpoints and two lines
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(stopped.step, 5);
  EXPECT_EQ(run(recipe, folder, /*stop_after=*/2).step, 7);
  TrainOptions options;
  options.run = folder;
  const TrainResult finished = train(recipe_of_run(folder), options);  // as `pacer train --run` does
  EXPECT_TRUE(finished.finished);
  expect_same_checkpoint(whole.checkpoint, finished.checkpoint);
  EXPECT_EQ(records(folder, "train"), records(temporary.path() / "whole", "train"));
  EXPECT_EQ(records(folder, "validation"), records(temporary.path() / "whole", "validation"));
  EXPECT_EQ(records(folder, "start").size(), 3u);
}

// Nothing in training draws from LibTorch's generator, so what follows a run shows what it was set to.
TEST(Train, RandomNumbersOfTheDeviceGoOnWhereTheCheckpointLeftThem) {
  const pacer::test::TemporaryFolder temporary;
  const Recipe recipe = checked_recipe(temporary.path());
  const fs::path folder = temporary.path() / "run";
  at::rand({5});
  const TrainResult stopped = run(recipe, folder, /*stop_after=*/5);
  const at::Tensor expected = at::rand({64});
  run(recipe, folder, /*stop_after=*/1);
  EXPECT_TRUE(at::equal(at::rand({64}), expected));
  EXPECT_TRUE(fs::exists(stopped.checkpoint / "generator.safetensors"));
}

TEST(Train, AnotherSeedEndsElsewhere) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = test::tiny_recipe(temporary.path());
  const fs::path a = run(recipe, temporary.path() / "a").checkpoint;
  recipe.seed = 4;
  const fs::path b = run(recipe, temporary.path() / "b").checkpoint;
  EXPECT_NE(read_file(a / "model.safetensors"), read_file(b / "model.safetensors"));
}

TEST(Train, EpochsTakeEveryRowAndNoMore) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = test::tiny_recipe(temporary.path(), 11);
  recipe.schedule.steps.reset();
  recipe.schedule.epochs = 2;
  const TrainResult result = run(recipe, temporary.path() / "run");
  EXPECT_EQ(result.rows, 22);
  EXPECT_EQ(result.steps, 8);
}

TEST(Train, Report45SaysWhenARunIsTooSmall) {
  const pacer::test::TemporaryFolder temporary;
  std::vector<std::string> warnings, notes;
  set_log_sink([&](LogLevel level, std::string_view line) {
    (level == LogLevel::warning ? warnings : notes).emplace_back(line);
  });
  Recipe recipe = test::tiny_recipe(temporary.path(), 100);
  recipe.schedule.steps = 4;
  recipe.schedule.warmup_steps = 2;
  run(recipe, temporary.path() / "enough");
  const size_t quiet = warnings.size();
  recipe.schedule.warmup_steps = 3;
  run(recipe, temporary.path() / "warming");
  fs::create_directories(temporary.path() / "few");
  Recipe few = test::tiny_recipe(temporary.path() / "few", 99);
  few.schedule.steps = 4;
  run(few, temporary.path() / "run");
  set_log_sink({});
  EXPECT_EQ(quiet, 0u) << warnings.front();
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("3 of 4 steps"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find("only 99 training rows"), std::string::npos) << warnings[1];
  EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const std::string& line) {
    return line.find("learning rate of the first steps") != std::string::npos;
  }));
}

TEST(Train, ADamagedCheckpointIsPassedOver) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = checked_recipe(temporary.path());
  const TrainResult whole = run(recipe, temporary.path() / "whole");
  const fs::path folder = temporary.path() / "damaged";
  run(recipe, folder, /*stop_after=*/9);
  fs::resize_file(folder / "checkpoints" / "step_000009" / "optimizer.safetensors", 1000);
  std::string heard;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) heard += line;
  });
  const TrainResult result = run(recipe, folder);
  set_log_sink({});
  EXPECT_NE(heard.find("passing over an incomplete checkpoint"), std::string::npos) << heard;
  expect_same_checkpoint(whole.checkpoint, result.checkpoint);
}

TEST(Train, AnEpochsCheckpointHasALinkAndIsKept) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = checked_recipe(temporary.path());
  recipe.schedule.steps = 24;
  recipe.checkpoint.every = 1;
  recipe.checkpoint.keep_last = 1;
  recipe.checkpoint.keep_best = false;
  recipe.checkpoint.epochs = 2;
  const fs::path checkpoints = temporary.path() / "run" / "checkpoints";
  run(recipe, temporary.path() / "run", /*stop_after=*/23);
  const TrainResult result = run(recipe, temporary.path() / "run");
  EXPECT_EQ(result.step, 24);
  const int64_t per_step = recipe.data.sequences * recipe.data.accumulation;
  const int64_t epoch_rows = records(temporary.path() / "run", "start").front().at("rows").get<int64_t>();
  std::set<std::string> expected = {"latest", "step_000024"};
  for (int64_t epoch = 2; epoch * epoch_rows <= 24 * per_step; epoch += 2) {
    char step[32], link[32];
    std::snprintf(step, sizeof step, "step_%06lld",
                  static_cast<long long>((epoch * epoch_rows + per_step - 1) / per_step));
    std::snprintf(link, sizeof link, "epoch_%04lld", static_cast<long long>(epoch));
    expected.insert({step, link});
    EXPECT_EQ(fs::read_symlink(checkpoints / link), step);
    EXPECT_TRUE(fs::exists(checkpoints / link / "model.safetensors"));
  }
  EXPECT_GT(expected.size(), 3u);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoints)) names.insert(entry.path().filename());
  EXPECT_EQ(names, expected);
}

TEST(Train, KeepsTheNewestAndTheBest) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = checked_recipe(temporary.path());
  recipe.schedule.steps = 24;
  recipe.optimizer.learning_rate = 0.05;  // rough enough that the best is not the last
  recipe.schedule.shape = "constant";
  recipe.checkpoint.every = 2;
  const TrainResult result = run(recipe, temporary.path() / "run");
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(temporary.path() / "run" / "checkpoints")) {
    names.insert(entry.path().filename());
  }
  const std::string best = result.draft.filename();
  EXPECT_EQ(names, (std::set<std::string>{"best", "latest", "step_000022", "step_000024", best}));
  EXPECT_EQ(fs::read_symlink(temporary.path() / "run" / "checkpoints" / "latest"), "step_000024");
  double most = 0;
  for (const Json& record : records(temporary.path() / "run", "validation")) {
    if (record["step"] != 0) most = std::max(most, record["tau"].get<double>());
  }
  EXPECT_EQ(result.best_tau, most);
}

TEST(Train, ABudgetBecomesAPlanThatIsUsedAgain) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = checked_recipe(temporary.path());
  recipe.schedule.steps.reset();
  recipe.schedule.time_budget_s = 6;
  recipe.schedule.budget_clock = "cpu";
  const fs::path folder = temporary.path() / "run";
  const TrainResult stopped = run(recipe, folder, /*stop_after=*/1);
  const Json plan = read_json(folder / "plan.json");
  EXPECT_GT(plan["measured"]["step_s"].get<double>(), 0);
  EXPECT_GT(stopped.steps, 1);
  EXPECT_EQ(plan["steps"], stopped.steps);
  const TrainResult continued = run(recipe, folder, /*stop_after=*/1);
  EXPECT_EQ(continued.step, 2);
  EXPECT_EQ(continued.steps, stopped.steps);
  EXPECT_EQ(read_json(folder / "plan.json"), plan);
  // Another run with as many steps gives the same weights: measuring has left no trace in them.
  recipe.schedule.time_budget_s.reset();
  recipe.schedule.steps = stopped.steps;
  const TrainResult counted = run(recipe, temporary.path() / "counted", /*stop_after=*/2);
  EXPECT_EQ(read_file(counted.checkpoint / "model.safetensors"), read_file(continued.checkpoint / "model.safetensors"));
}

TEST(Train, RefusesToContinueWithOtherSettingsRowsOrTarget) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = test::tiny_recipe(temporary.path());
  const fs::path folder = temporary.path() / "run";
  run(recipe, folder, /*stop_after=*/2);
  Recipe other = recipe;
  other.optimizer.learning_rate = 1e-3;
  EXPECT_NE(refusal(other, folder, ErrorKind::usage).find("optimizer.learning_rate was 0.005, is 0.001"),
            std::string::npos);
  other = recipe;
  other.checkpoint.every = 3;
  EXPECT_EQ(refusal(other, folder, ErrorKind::usage), "accepted");
  test::write_rows(temporary.path() / "rows.jsonl", test::tiny_rows(30, /*seed=*/2));
  EXPECT_NE(refusal(recipe, folder, ErrorKind::data).find("the training rows changed"), std::string::npos);
}

TEST(Train, StopsBeforeAnUpdateThatIsNotFinite) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = test::tiny_recipe(temporary.path());
  recipe.optimizer.learning_rate = 1;
  recipe.optimizer.clip = 0;
  recipe.optimizer.rates = {{"*", 1000}};
  recipe.optimizer.weight_decay = 10;
  recipe.schedule.steps = 400;
  recipe.schedule.shape = "constant";
  recipe.checkpoint.every = 1;
  const std::string what = refusal(recipe, temporary.path() / "run", ErrorKind::usage);
  EXPECT_NE(what.find("is not finite"), std::string::npos) << what;
  EXPECT_EQ(what.find("step "), 0u) << what;
}

// --- kill -9 ---

constexpr const char* kChildFolder = "PACER_TEST_TRAIN_CHILD";

Recipe killed_recipe(const fs::path& folder) {
  Recipe recipe = checked_recipe(folder);
  recipe.schedule.steps = 40;
  recipe.validation.every = 5;
  recipe.checkpoint.every = 2;
  recipe.logging.every = 3;
  return recipe;
}

// Not a test: what the process that gets killed runs. It writes one byte to stdout's place after every step.
TEST(TrainChild, DISABLED_Run) {
  const char* folder = std::getenv(kChildFolder);
  ASSERT_NE(folder, nullptr);
  TrainOptions options;
  options.run = fs::path(folder) / "killed";
  options.stop_requested = [] {
    const char step = '.';
    return ::write(STDOUT_FILENO, &step, 1) != 1;
  };
  train(resolve(killed_recipe(folder), "test"), options);
}

struct Child {
  pid_t process;
  int steps;  // where its bytes arrive
};

Child start_child(const fs::path& folder) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  const std::string setting = folder.string();
  const pid_t process = ::fork();
  if (process == 0) {
    ::setenv(kChildFolder, setting.c_str(), 1);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    ::execl("/proc/self/exe", "train_test", "--gtest_filter=TrainChild.DISABLED_Run", "--gtest_brief=1",
            "--gtest_also_run_disabled_tests", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  return {process, ends[0]};
}

TEST(TrainKilled, AtRandomMomentsEndsWithTheSameBits) {
  const pacer::test::TemporaryFolder temporary;
  const TrainResult whole = run(killed_recipe(temporary.path()), temporary.path() / "whole");
  const RandomStream random(11, Purpose::test);
  int kills = 0;
  for (uint64_t round = 0; round < 40; ++round) {
    const Child child = start_child(temporary.path());
    // At least one checkpoint further on, then somewhere inside a step, a validation or a save.
    int64_t wait = 4 + static_cast<int64_t>(random.below(2 * round, 5));
    char byte = 0;
    while (wait > 0 && ::read(child.steps, &byte, 1) == 1) wait -= byte == '.' ? 1 : 0;
    if (wait == 0) ::usleep(static_cast<useconds_t>(random.below(2 * round + 1, 30'000)));
    ::kill(child.process, SIGKILL);
    ::close(child.steps);
    int status = 0;
    ::waitpid(child.process, &status, 0);
    if (WIFSIGNALED(status)) {
      ++kills;
      continue;
    }
    ASSERT_EQ(WEXITSTATUS(status), 0) << "the child failed by itself";
    break;
  }
  EXPECT_GE(kills, 4);
  const TrainResult result = run(killed_recipe(temporary.path()), temporary.path() / "killed");
  EXPECT_TRUE(result.finished);
  expect_same_checkpoint(whole.checkpoint, result.checkpoint);
  EXPECT_EQ(records(temporary.path() / "killed", "train"), records(temporary.path() / "whole", "train"));
}

}  // namespace
}  // namespace pacer::train
