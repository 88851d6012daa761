// docs/errors.md: every row of its table is provoked, and says what the table says.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct Row {
  std::string message;
  int exit_code = 0;
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" `"), end = text.find_last_not_of(" `");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// The table below "## Messages".
std::map<std::string, Row> documented() {
  std::istringstream lines(read_file(test::source_dir() / "docs" / "errors.md"));
  std::map<std::string, Row> rows;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    inside = inside || line == "## Messages";
    if (!inside || !line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::istringstream parts(line.substr(1));
    for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(trimmed(cell));
    EXPECT_EQ(cells.size(), 5u) << line;
    if (cells.size() != 5) continue;
    EXPECT_FALSE(cells[3].empty() || cells[4].empty()) << line;
    EXPECT_TRUE(rows.emplace(cells[0], Row{cells[1], std::stoi(cells[2])}).second) << cells[0] << " twice";
  }
  return rows;
}

// Whether the parts of `pattern` between "…" stand in `text` one after the other.
bool says(const std::string& text, const std::string& pattern) {
  const std::string gap = "…";
  size_t from = 0;
  for (size_t at = 0; at <= pattern.size();) {
    const size_t end = std::min(pattern.find(gap, at), pattern.size());
    const std::string part = pattern.substr(at, end - at);
    const size_t found = text.find(part, from);
    if (found == std::string::npos) return false;
    from = found + part.size();
    at = end + gap.size();
  }
  return true;
}

// A folder in which things go wrong.
class Scene {
 public:
  Scene() {
    write_tiny_model(at("model"));
    write_tiny_gguf(at("tiny.gguf"));
    write_prompts(at("prompts.jsonl"));
    write_training_rows(at("rows.jsonl"), 12);
    write_tiny_recipe(at("recipe.yaml"), at("model"), at("rows.jsonl"), 4);
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  std::string path(const std::string& name) const { return at(name).string(); }

  fs::path model(const std::string& name, const TinyModel& model = {}) {
    write_tiny_model(at(name), model);
    return at(name);
  }
  // A trained draft, once.
  std::string run() {
    if (!fs::exists(at("run"))) {
      EXPECT_EQ(pacer(train("run")).exit_code, 0);
    }
    return path("run");
  }

  Words train(const std::string& run, const Words& overrides = {}) const {
    Words words = {"train", "-c", path("recipe.yaml"), "--run", path(run), "-q"};
    words.insert(words.end(), overrides.begin(), overrides.end());
    return words;
  }
  Words data(const std::string& model, const std::string& out, const std::string& prompts = "prompts.jsonl") const {
    return {"data",    "generate", "--target",         path(model), "--prompts", path(prompts), "--out", path(out),
            "--dtype", "f32",      "--max-new-tokens", "4",         "--threads", "1",           "-q"};
  }
  Words generate(const std::string& model, const Words& more = {}, const std::string& prompt = "Hi") const {
    Words words = {"generate", "--target",         path(model), "--prompt",  prompt, "--dtype",
                   "f32",      "--max-new-tokens", "4",         "--threads", "1",    "-q"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // A folder with a config.json and one more file.
  void folder_with(const std::string& name, const std::string& file, const std::string& content) {
    fs::create_directories(at(name));
    fs::copy_file(at("model") / "config.json", at(name) / "config.json", fs::copy_options::overwrite_existing);
    fs::copy_file(at("model") / "tokenizer.json", at(name) / "tokenizer.json", fs::copy_options::overwrite_existing);
    write_file(at(name) / file, content);
  }

 private:
  test::TemporaryFolder folder_;
};

// A lock as another process holds it.
class Held {
 public:
  explicit Held(const fs::path& file) {
    fs::create_directories(file.parent_path());
    descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    EXPECT_EQ(::flock(descriptor_, LOCK_EX | LOCK_NB), 0);
  }
  ~Held() { ::close(descriptor_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  int descriptor_;
};

std::string patched(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = read_file(file);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << file;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

using Provoke = std::function<Outcome(Scene&)>;

std::map<std::string, Provoke> disks() {
  return {
      {"disk-full-train",
       [](Scene& s) {
         const Outcome outcome = pacer_on_full_disk(s.train("full"), 30'000);
         EXPECT_EQ(pacer(s.train("full")).exit_code, 0) << "goes on when there is space";
         EXPECT_EQ(read_file(s.at("full") / "checkpoints" / "latest" / "model.safetensors"),
                   read_file(fs::path(s.run()) / "checkpoints" / "latest" / "model.safetensors"));
         return outcome;
       }},
      {"disk-full-generate",
       [](Scene& s) {
         const Outcome outcome = pacer_on_full_disk(s.data("model", "full.jsonl"), 1200);
         EXPECT_EQ(pacer(s.data("model", "full.jsonl")).exit_code, 0);
         EXPECT_EQ(pacer(s.data("model", "straight.jsonl")).exit_code, 0);
         EXPECT_EQ(read_file(s.at("full.jsonl")), read_file(s.at("straight.jsonl")));
         return outcome;
       }},
      {"disk-full-convert",
       [](Scene& s) {
         const std::string file = s.path("tiny.gguf");
         EXPECT_EQ(pacer({"model", "convert", file, s.path("converted")}).exit_code, 0);
         const std::string before = read_file(s.at("converted") / "manifest.json");
         const Outcome outcome =
             pacer_on_full_disk({"model", "convert", file, s.path("converted"), "--replace", "--dtype", "f32"}, 20'000);
         EXPECT_EQ(read_file(s.at("converted") / "manifest.json"), before);
         return outcome;
       }},
      {"read-only", [](Scene& s) { return pacer({"train", "-c", s.path("recipe.yaml"), "--run", "/proc/pacer/run"}); }},
      {"stdout-full", [](Scene&) { return pacer_into("/dev/full", {"config", "schema"}); }},
  };
}

std::map<std::string, Provoke> models() {
  return {
      {"no-model", [](Scene& s) { return pacer(s.generate("nowhere")); }},
      {"no-config",
       [](Scene& s) {
         fs::create_directories(s.at("empty"));
         fs::copy_file(s.at("model") / "tokenizer.json", s.at("empty") / "tokenizer.json");
         return pacer(s.generate("empty", {"--raw"}));
       }},
      {"shards-missing",
       [](Scene& s) {
         s.folder_with("shards", "model.safetensors.index.json",
                       R"({"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}})");
         return pacer(s.generate("shards", {"--raw"}));
       }},
      {"stale-index",
       [](Scene& s) {
         s.model("stale");
         write_file(s.at("stale") / "model.safetensors.index.json", R"({"weight_map": {"a": "old.safetensors"}})");
         return pacer(s.generate("stale"));
       }},
      {"path-leaves-folder",
       [](Scene& s) {
         s.folder_with("leaves", "model.safetensors.index.json",
                       R"({"weight_map": {"a": "../model/model.safetensors"}})");
         return pacer(s.generate("leaves", {"--raw"}));
       }},
      {"impossible-name",
       [](Scene& s) {
         s.folder_with("impossible", "model.safetensors.index.json",
                       R"({"weight_map": {"a": ")" + std::string(300, 'x') + R"("}})");
         return pacer(s.generate("impossible", {"--raw"}));
       }},
      {"path-too-long", [](Scene& s) { return pacer(s.generate(std::string(300, 'x'), {"--raw"})); }},
      {"pickled",
       [](Scene& s) {
         s.folder_with("pickled", "pytorch_model.bin", "x");
         return pacer(s.generate("pickled", {"--raw"}));
       }},
      {"cut-off",
       [](Scene& s) {
         fs::resize_file(s.model("cut") / "model.safetensors", 20'000);
         return pacer(s.generate("cut"));
       }},
      {"other-tensors",
       [](Scene& s) {
         s.model("other");
         write_file(s.at("other") / "config.json",
                    patched(s.at("other") / "config.json", "\"intermediate_size\": 64", "\"intermediate_size\": 96"));
         return pacer(s.generate("other"));
       }},
      {"lying-config",
       [](Scene& s) {
         s.model("lying");
         write_file(s.at("lying") / "config.json", patched(s.at("lying") / "config.json", "\"num_hidden_layers\": 6",
                                                           "\"num_hidden_layers\": 1000000000"));
         return pacer(s.generate("lying"));
       }},
      {"not-json",
       [](Scene& s) {
         write_file(s.model("json") / "config.json", "{\"a\": 1,\n oops}");
         return pacer(s.generate("json"));
       }},
      {"unknown-tokenizer",
       [](Scene& s) {
         s.model("unigram");
         write_file(s.at("unigram") / "tokenizer.json",
                    patched(s.at("unigram") / "tokenizer.json", "\"type\":\"BPE\"", "\"type\":\"Unigram\""));
         return pacer(s.generate("unigram"));
       }},
      {"template-syntax",
       [](Scene& s) {
         write_file(s.model("go") / "chat_template.jinja", "{% if messages %}cut off");
         const Outcome outcome = pacer(s.data("go", "go.jsonl"));
         EXPECT_FALSE(fs::exists(s.at("go.jsonl"))) << "nothing is written with another template";
         return outcome;
       }},
      {"template-refuses",
       [](Scene& s) {
         write_file(s.model("strict") / "chat_template.jinja", "{{ raise_exception('roles must alternate') }}");
         return pacer(s.generate("strict"));
       }},
      {"tokens-outside",
       [](Scene& s) {
         write_file(s.model("extra") / "tokenizer.json", byte_tokenizer(20).dump());
         EXPECT_EQ(pacer(s.generate("extra", {"--raw"})).exit_code, 0) << "harmless while no such token is used";
         return pacer(s.generate("extra", {"--raw"}, "a <extra_15> b"));
       }},
      {"damaged-weights",
       [](Scene& s) {
         s.model("nan", {.not_a_number = true});
         return pacer(s.generate("nan"));
       }},
      {"damaged-weights-train",
       [](Scene& s) {
         s.model("nan", {.not_a_number = true});
         return pacer(s.train("nan-run", {"model.target=" + Json(s.path("nan")).dump()}));
       }},
      {"no-device", [](Scene& s) { return pacer(s.generate("model", {"--device", "cuda:0"})); }},
  };
}

std::map<std::string, Provoke> drafts() {
  return {
      {"damaged-draft",
       [](Scene& s) {
         fs::copy(fs::canonical(fs::path(s.run()) / "checkpoints" / "latest"), s.at("nan-draft"));
         const fs::path file = s.at("nan-draft") / "model.safetensors";
         std::string bytes = read_file(file);
         bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff");
         write_file(file, bytes);
         return pacer(s.generate("model", {"--draft", s.path("nan-draft")}));
       }},
      {"other-target-sizes",
       [](Scene& s) {
         s.model("wide", {.hidden = 64});
         return pacer(s.generate("wide", {"--draft", s.run()}));
       }},
      {"other-target-weights",
       [](Scene& s) {
         s.model("revised", {.seed = 2});
         return pacer(s.generate("revised", {"--draft", s.run()}));
       }},
      {"no-draft",
       [](Scene& s) {
         fs::create_directories(s.at("no draft"));
         return pacer(s.generate("model", {"--draft", s.path("no draft")}));
       }},
      {"target-as-draft", [](Scene& s) { return pacer(s.generate("model", {"--draft", s.path("model")})); }},
  };
}

std::map<std::string, Provoke> rows_and_prompts() {
  return {
      {"no-prompts", [](Scene& s) { return pacer(s.data("model", "never.jsonl", "vanished.jsonl")); }},
      {"no-rows",
       [](Scene& s) {
         write_file(s.at("bad.jsonl"),
                    "{\"prompt_ids\": [1], \"output_ids\": [5000, 5000]}\nNaN\n{\"prompt_ids\": [NaN]}\n");
         return pacer(s.train("no-rows", {"data.train=" + Json(s.path("bad.jsonl")).dump()}));
       }},
      {"no-usable-prompt",
       [](Scene& s) {
         write_file(s.at("empty.jsonl"), "{\"messages\": []}\n");
         return pacer(s.data("model", "never.jsonl", "empty.jsonl"));
       }},
      {"too-few-rows", [](Scene& s) { return pacer(s.train("few", {"data.validation_rows=12"})); }},
      {"long-prompt", [](Scene& s) { return pacer(s.generate("model", {"--raw"}, std::string(1024, 'a'))); }},
      {"rows-in-use",
       [](Scene& s) {
         const Held held(s.at("held.jsonl"));
         return pacer(s.data("model", "held.jsonl"));
       }},
      {"settings-changed",
       [](Scene& s) {
         EXPECT_EQ(pacer(s.data("model", "begun.jsonl")).exit_code, 0);
         Words other = s.data("model", "begun.jsonl");
         other.insert(other.end(), {"--temperature", "0.5"});
         return pacer(other);
       }},
      {"not-our-rows",
       [](Scene& s) {
         write_file(s.at("thesis.txt"), "my thesis\n");
         const Outcome outcome = pacer(s.data("model", "thesis.txt"));
         EXPECT_EQ(read_file(s.at("thesis.txt")), "my thesis\n");
         return outcome;
       }},
  };
}

std::map<std::string, Provoke> runs() {
  return {
      {"unknown-key", [](Scene& s) { return pacer(s.train("key", {"optimizer.learning_rat=1"})); }},
      {"diverged",
       [](Scene& s) {
         return pacer(
             s.train("diverged", {"optimizer.learning_rate=1", "optimizer.clip=0", "optimizer.weight_decay=10",
                                  "optimizer.rates={\"*\": 1000}", "schedule.steps=400", "schedule.shape=constant"}));
       }},
      {"run-in-use",
       [](Scene& s) {
         const Held held(s.at("held run") / "run.lock");
         return pacer(s.train("held run"));
       }},
      {"quickstart-in-use",
       [](Scene& s) {
         const Held held(s.at("held quickstart") / "stages" / "lock");
         return pacer({"quickstart", "--dir", s.path("held quickstart"), "--model", s.path("model")});
       }},
      {"foreign-folder",
       [](Scene& s) {
         fs::create_directories(s.at("thesis"));
         write_file(s.at("thesis") / "thesis.tex", "x");
         return pacer(s.train("thesis"));
       }},
      {"recipe-changed",
       [](Scene& s) {
         s.run();
         return pacer(s.train("run", {"optimizer.learning_rate=1e-3"}));
       }},
      {"rows-changed",
       [](Scene& s) {
         EXPECT_EQ(pacer(s.train("changed")).exit_code, 0);
         write_training_rows(s.at("rows.jsonl"), 13);
         const Outcome outcome = pacer(s.train("changed"));
         write_training_rows(s.at("rows.jsonl"), 12);
         return outcome;
       }},
      {"damaged-checkpoint",
       [](Scene& s) {
         EXPECT_EQ(pacer(s.train("damaged")).exit_code, 0);
         fs::resize_file(s.at("damaged") / "checkpoints" / "step_000004" / "optimizer.safetensors", 100);
         const Outcome outcome = pacer(s.train("damaged"));
         EXPECT_EQ(read_file(s.at("damaged") / "checkpoints" / "latest" / "optimizer.safetensors"),
                   read_file(fs::path(s.run()) / "checkpoints" / "latest" / "optimizer.safetensors"));
         return outcome;
       }},
      {"folder-exists", [](Scene& s) { return pacer({"model", "convert", s.path("tiny.gguf"), s.path("model")}); }},
      {"unknown-option", [](Scene& s) { return pacer({"report", s.path("model"), "--ouut", "x"}); }},
  };
}

TEST(ErrorsPage, EveryRowIsProvokedAndSaysWhatItSays) {
  std::map<std::string, Provoke> all;
  for (auto part : {disks(), models(), drafts(), rows_and_prompts(), runs()}) all.merge(part);
  const std::map<std::string, Row> rows = documented();
  for (const auto& [name, row] : rows) EXPECT_TRUE(all.contains(name)) << "nothing provokes " << name;

  Scene scene;
  for (const auto& [name, provoke] : all) {
    const auto row = rows.find(name);
    if (row == rows.end()) {
      ADD_FAILURE() << name << " is not in docs/errors.md";
      continue;
    }
    SCOPED_TRACE(name);
    Outcome outcome;
    try {
      outcome = provoke(scene);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    EXPECT_EQ(outcome.exit_code, row->second.exit_code) << name << ": " << outcome.error;
    EXPECT_TRUE(says(outcome.error, row->second.message)) << name << " says: " << outcome.error;
    if (row->second.exit_code == 0) continue;
    EXPECT_NE(outcome.error.find("error: "), std::string::npos) << name << ": " << outcome.error;
    EXPECT_NE(outcome.error.find("hint: "), std::string::npos) << name << ": " << outcome.error;
  }
}

TEST(ErrorsPage, PatternsAreCompared) {
  EXPECT_TRUE(says("x: write failed: full", "…write failed: …"));
  EXPECT_FALSE(says("x: read failed: full", "…write failed: …"));
  EXPECT_FALSE(says("b a", "…a…b…"));
  EXPECT_GT(documented().size(), 30u);
}

}  // namespace
}  // namespace pacer::cli
