// Every writer of the program, killed at its operations on the file system and continued: it ends with the same bits,
// and nothing that is torn is ever taken for whole.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/random.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/manifest.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

// The loader splits LD_PRELOAD at spaces: a copy of the shim where the path has none.
std::string preload_shim() {
  static const pacer::test::TemporaryFolder folder;
  static const std::filesystem::path copy = [] {
    std::filesystem::copy_file(PACER_CRASH_SHIM, folder.path() / "shim.so");
    return folder.path() / "shim.so";
  }();
  return "LD_PRELOAD=" + copy.string();
}

namespace fs = std::filesystem;

using Content = std::map<std::string, std::string>;  // what two runs must have in common, by name

struct Work {
  std::function<std::vector<std::string>(const fs::path& folder)> arguments;
  std::function<Content(const fs::path& folder)> outcome;
  // After a crash: what has its final name is whole. Optional.
  std::function<void(const fs::path& folder)> check = [](const fs::path&) {};
  bool leaves_nothing = true;  // the next run removes what the killed one left behind
};

bool full() {
  const char* value = std::getenv("PACER_TEST_FULL");
  return value != nullptr && std::string(value) == "1";
}

// Files below `folder`, by their relative names.
Content files_of(const fs::path& folder) {
  Content content;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink()) {
      content[fs::relative(entry.path(), folder)] = "-> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_regular_file()) {
      content[fs::relative(entry.path(), folder)] = read_file(entry.path());
    }
  }
  return content;
}

// Names of what a crash left and nobody took away.
std::string leftovers(const fs::path& folder) {
  std::string found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".tmp-") == std::string::npos && name.find(".old-") == std::string::npos) continue;
    found += fs::relative(entry.path(), folder).string() + " ";
  }
  return found;
}

// Lines of metrics.jsonl without times; which call wrote them is no part of the result.
std::string metrics_of(const fs::path& file) {
  std::istringstream lines(read_file(file));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    Json record = Json::parse(line);
    if (record["kind"] != "train" && record["kind"] != "validation") continue;
    for (const char* time : {"wall_s", "cpu_s", "target_cpu_s"}) record.erase(time);
    text += record.dump() + "\n";
  }
  return text;
}

Content run_folder(const fs::path& run) {
  Content content = files_of(run / "checkpoints");
  content["metrics"] = metrics_of(run / "metrics.jsonl");
  content["plan"] = read_file(run / "plan.json");
  content["recipe"] = read_file(run / "recipe.yaml");
  return content;
}

// Texts and counts of an evaluation; times differ from run to run.
std::string evaluation_of(const fs::path& file) {
  std::string text;
  const Json all = read_json(file);
  for (const auto& [task, result] : all.at("tasks").items()) {
    for (const Json& turn : result.at("results")) {
      text += task + " " + turn.at("id").dump() + " " + turn.at("text").dump() + " " +
              turn.at("plain").at("new_tokens").dump();
      // Where only the pacing rule was measured the rounds are the clock's.
      const bool paced = turn.at("speculative").is_null();
      const Json& drafted = turn.at(paced ? "paced" : "speculative");
      text += " " + (paced ? "" : drafted.at("rounds").dump()) + " " + drafted.at("identical").dump() + "\n";
    }
  }
  return text;
}

// What all of them work on, made once.
class Crash : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    inputs_ = new test::TemporaryFolder;
    write_tiny_model(input("model"));
    write_tiny_gguf(input("tiny.gguf"));
    write_prompts(input("prompts.jsonl"));
    write_training_rows(input("rows.jsonl"), 12);
    write_tiny_recipe(input("recipe.yaml"), input("model"), input("rows.jsonl"), 6);
  }
  static void TearDownTestSuite() {
    delete inputs_;
    inputs_ = nullptr;
  }
  static fs::path input(const std::string& name) { return inputs_->path() / name; }

  // rounds times: a fresh folder, `kills` crashes in a row, then a run that is left alone.
  static void survive(const Work& work, int rounds, int kills) {
    const test::TemporaryFolder whole;
    const fs::path count = whole.path() / "count";
    fs::create_directory(whole.path() / "w");
    const Outcome reference = pacer(work.arguments(whole.path() / "w"),
                                    {preload_shim(), "PACER_CRASH_COUNT=" + count.string(), "OMP_WAIT_POLICY=passive"});
    ASSERT_EQ(reference.exit_code, 0) << reference.error;
    const uint64_t operations = std::stoull(read_file(count));
    ASSERT_GT(operations, 4u) << "the shim sees nothing";
    const Content expected = work.outcome(whole.path() / "w");
    ASSERT_FALSE(expected.empty());

    int killed = 0;
    for (int round = 0; round < rounds; ++round) {
      const test::TemporaryFolder folder;
      std::string history;
      for (int kill = 0; kill < kills; ++kill) {
        const RandomStream random(5, Purpose::test, static_cast<uint64_t>(round), static_cast<uint64_t>(kill));
        const uint64_t point = 1 + random.below(0, operations);
        history += " " + std::to_string(point);
        const Outcome outcome =
            pacer(work.arguments(folder.path()),
                  {preload_shim(), "PACER_CRASH_AT=" + std::to_string(point), "OMP_WAIT_POLICY=passive"});
        ASSERT_TRUE(outcome.exit_code == 128 + SIGKILL || outcome.exit_code == 0)
            << "after crashes at" << history << ": " << outcome.exit_code << " " << outcome.error;
        killed += outcome.exit_code == 0 ? 0 : 1;
        work.check(folder.path());
      }
      const Outcome last = pacer(work.arguments(folder.path()));
      ASSERT_EQ(last.exit_code, 0) << "after crashes at" << history << ": " << last.error;
      const Content found = work.outcome(folder.path());
      for (const auto& [name, content] : expected) {
        ASSERT_TRUE(found.contains(name)) << name << " is missing after crashes at" << history;
        EXPECT_TRUE(found.at(name) == content) << name << " differs after crashes at" << history;
      }
      for (const auto& [name, content] : found) {
        EXPECT_TRUE(expected.contains(name)) << name << " is too much after crashes at" << history;
      }
      if (work.leaves_nothing) {
        EXPECT_EQ(leftovers(folder.path()), "") << "after crashes at" << history;
      }
    }
    EXPECT_GT(killed, rounds * kills / 3);
  }
  // 50 points each of four writers in the full form.
  static int rounds() { return full() ? 10 : 1; }
  static int kills() { return full() ? 5 : 3; }

 private:
  static test::TemporaryFolder* inputs_;
};

test::TemporaryFolder* Crash::inputs_ = nullptr;

TEST_F(Crash, Train) {
  Work work;
  work.arguments = [](const fs::path& folder) {
    return std::vector<std::string>{"train", "-c", input("recipe.yaml").string(), "--run", (folder / "run").string(),
                                    "-q"};
  };
  work.outcome = [](const fs::path& folder) { return run_folder(folder / "run"); };
  work.check = [](const fs::path& folder) {
    const fs::path checkpoints = folder / "run" / "checkpoints";
    if (!fs::exists(checkpoints)) return;
    for (const auto& entry : fs::directory_iterator(checkpoints)) {
      const std::string name = entry.path().filename().string();
      if (name.find(".tmp-") != std::string::npos || name.find(".old-") != std::string::npos) continue;
      EXPECT_NO_THROW(
          formats::read_manifest(entry.path(), "pacer.train-checkpoint", 1, formats::ManifestCheck::checksums))
          << name;
    }
  };
  survive(work, rounds(), kills());
}

TEST_F(Crash, DataGenerate) {
  Work work;
  work.arguments = [](const fs::path& folder) {
    return std::vector<std::string>{"data",
                                    "generate",
                                    "--target",
                                    input("model").string(),
                                    "--prompts",
                                    input("prompts.jsonl").string(),
                                    "--out",
                                    (folder / "rows.jsonl").string(),
                                    "--dtype",
                                    "f32",
                                    "--max-new-tokens",
                                    "6",
                                    "--batch",
                                    "3",
                                    "--threads",
                                    "1",
                                    "-q"};
  };
  work.outcome = [](const fs::path& folder) { return files_of(folder); };
  survive(work, rounds(), kills());
}

TEST_F(Crash, ModelConvert) {
  Work work;
  work.arguments = [](const fs::path& folder) {
    return std::vector<std::string>{"model",     "convert", input("tiny.gguf").string(), (folder / "model").string(),
                                    "--replace", "-q"};
  };
  work.outcome = [](const fs::path& folder) { return files_of(folder); };
  work.check = [](const fs::path& folder) {
    if (!fs::exists(folder / "model")) return;
    EXPECT_NO_THROW(formats::read_manifest(folder / "model", "pacer.model", 1, formats::ManifestCheck::checksums));
  };
  survive(work, rounds(), kills());
}

TEST_F(Crash, ModelConvertToGguf) {
  Work work;
  work.arguments = [](const fs::path& folder) {
    return std::vector<std::string>{"model",
                                    "convert",
                                    input("tiny.gguf").string(),
                                    (folder / "model.gguf").string(),
                                    "--to",
                                    "gguf",
                                    "--type",
                                    "q8_0",
                                    "--replace",
                                    "-q"};
  };
  work.outcome = [](const fs::path& folder) { return Content{{"file", read_file(folder / "model.gguf")}}; };
  work.check = [](const fs::path& folder) {
    if (!fs::exists(folder / "model.gguf")) return;
    EXPECT_NO_THROW(formats::GgufModel::open(folder / "model.gguf"));
  };
  work.leaves_nothing = false;  // nobody holds a lock for a single file
  survive(work, full() ? 5 : 1, full() ? 5 : 3);
}

TEST_F(Crash, EvaluationAndReport) {
  const fs::path run = input("a run");
  if (!fs::exists(run)) {
    const Outcome trained = pacer({"train", "-c", input("recipe.yaml").string(), "--run", run.string(), "-q"});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
  }
  Work evaluation;
  evaluation.arguments = [&](const fs::path& folder) {
    return std::vector<std::string>{"eval",
                                    "--target",
                                    input("model").string(),
                                    "--draft",
                                    run.string(),
                                    "--tasks",
                                    input("prompts.jsonl").string(),
                                    "--limit",
                                    "2",
                                    "--dtype",
                                    "f32",
                                    "--max-new-tokens",
                                    "6",
                                    "--no-lookup",
                                    "--threads",
                                    "1",
                                    "--out",
                                    (folder / "result.json").string(),
                                    "-q"};
  };
  evaluation.outcome = [](const fs::path& folder) { return Content{{"texts", evaluation_of(folder / "result.json")}}; };
  evaluation.check = [](const fs::path& folder) {
    if (fs::exists(folder / "result.json")) {
      EXPECT_NO_THROW(read_json(folder / "result.json"));
    }
  };
  evaluation.leaves_nothing = false;  // nobody holds a lock for a single file
  survive(evaluation, full() ? 5 : 1, full() ? 5 : 2);

  Work report;
  report.arguments = [&](const fs::path& folder) {
    return std::vector<std::string>{"report", run.string(), "--out", (folder / "report.html").string()};
  };
  report.outcome = [](const fs::path& folder) { return Content{{"page", read_file(folder / "report.html")}}; };
  report.check = [](const fs::path& folder) {
    if (fs::exists(folder / "report.html")) {
      EXPECT_TRUE(read_file(folder / "report.html").ends_with("</html>\n"));
    }
  };
  report.leaves_nothing = false;
  survive(report, full() ? 5 : 1, full() ? 5 : 2);
}

TEST_F(Crash, Quickstart) {
  Work work;
  work.arguments = [](const fs::path& folder) {
    return std::vector<std::string>{"quickstart",
                                    "--dir",
                                    (folder / "q").string(),
                                    "--model",
                                    input("model").string(),
                                    "--steps",
                                    "4",
                                    "--prompts",
                                    "16",
                                    "--evaluation-prompts",
                                    "1",
                                    "--threads",
                                    "1",
                                    "-q"};
  };
  work.outcome = [](const fs::path& folder) {
    const fs::path q = folder / "q";
    Content content = files_of(q / "run" / "checkpoints");
    content.merge(files_of(q / "data"));
    content.merge(files_of(q / "prompts"));
    content["bf16"] = evaluation_of(q / "evaluation.json");
    content["f32"] = evaluation_of(q / "evaluation_f32.json");
    return content;
  };
  survive(work, full() ? 5 : 1, full() ? 5 : 1);
}

// The wall clock finds what happens between the operations: in the middle of a step, of an answer, of a save.
TEST_F(Crash, TrainAtRandomMoments) {
  const test::TemporaryFolder folder;
  const std::vector<std::string> arguments = {
      "train", "-c", input("recipe.yaml").string(), "--run", (folder.path() / "run").string(), "-q"};
  const fs::path whole = folder.path() / "whole";
  ASSERT_EQ(pacer({"train", "-c", input("recipe.yaml").string(), "--run", whole.string(), "-q"}).exit_code, 0);
  const int moments = full() ? 30 : 3;
  for (int i = 0; i < moments; ++i) {
    const RandomStream random(6, Purpose::test, static_cast<uint64_t>(i));
    // SIGTERM asks, and a step later the run is saved; SIGKILL does not ask.
    const int signal = random.below(0, 3) == 0 ? SIGTERM : SIGKILL;
    const Outcome outcome = pacer_killed(arguments, signal, 0.9 * random.uniform(1));
    ASSERT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 128 + signal) << outcome.exit_code << outcome.error;
  }
  const Outcome last = pacer(arguments);
  ASSERT_EQ(last.exit_code, 0) << last.error;
  EXPECT_EQ(run_folder(folder.path() / "run"), run_folder(whole));
}

}  // namespace
}  // namespace pacer::cli
