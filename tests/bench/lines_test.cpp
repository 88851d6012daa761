// Every bench in its tiny form: the line that it prints has the fields of docs/performance.md, and they fit together.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/resources.h"
#include "pacer/bench/peaks.h"
#include "pacer/bench/run.h"
#include "tests/support/files.h"

namespace pacer::bench {
namespace {

std::filesystem::path tiny() { return test::source_dir() / "tests" / "bench" / "tiny.json"; }

// A tokenizer with a chat template.
std::filesystem::path chat_model() {
  static const test::TemporaryFolder folder;
  std::filesystem::copy_file(test::golden("tokenizers/tiny_qwen_style/tokenizer.json"),
                             folder.path() / "tokenizer.json", std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(test::golden("chat_templates/templates/chatml.jinja"),
                             folder.path() / "chat_template.jinja", std::filesystem::copy_options::overwrite_existing);
  return folder.path();
}

Request request(const std::string& bench, const std::string& name, const std::string& dtype) {
  Request request;
  request.settings.works = tiny();
  request.bench = bench;
  request.cases = {name};
  request.dtypes = {dtype};
  request.in_process = true;
  if (bench == "tokenizer") request.settings.model = chat_model();
  if (bench == "gguf") request.settings.model = test::golden("checkpoint_layouts/tiny_llama_f32.gguf");
  return request;
}

OrderedJson line_of(const Request& request) {
  OrderedJson line;
  run_benches(request, [&](const OrderedJson& printed) { line = printed; });
  return line;
}

std::vector<std::string> names(const OrderedJson& object) {
  std::vector<std::string> found;
  for (const auto& [name, value] : object.items()) found.push_back(name);
  return found;
}

TEST(BenchLines, EveryBenchPrintsTheFieldsOfItsDefinition) {
  const std::vector<std::string> first = {"bench", "case",         "threads",     "dtype",       "median_s",
                                          "min_s", "cpu_median_s", "peak_rss_mb", "delta_rss_mb"};
  const std::set<std::string> optional = {"tokens_per_cpu_s",
                                          "decode_only_tokens_per_cpu_s",
                                          "mb_per_cpu_s",
                                          "conversations_per_cpu_s",
                                          "loss",
                                          "grad_norm",
                                          "flops",
                                          "bytes"};
  const Works works = Works::read(tiny());
  for (const Bench& bench : all_benches()) {
    if (bench.name == "coldstart") continue;  // starts the program: tests/cli/bench_test.cpp
    for (const std::string& name : works.cases(bench.name)) {
      if (name == "long" || name == "huge") continue;  // they fail, as other tests say
      if (name == "peak" && !peak("f32")) continue;    // not written for this processor
      // Several processes: tests/cli/bench_test.cpp.
      if (bench.ranks != nullptr && bench.ranks(works.work(bench.name, name)) > 1) continue;
      const bool has_dtype = uses_dtype(works.work(bench.name, name));
      for (const std::string dtype : {"f32", "bf16"}) {
        const OrderedJson line = line_of(request(bench.name, name, dtype));
        SCOPED_TRACE(line.dump());
        std::vector<std::string> found = names(line);
        ASSERT_GT(found.size(), first.size());
        EXPECT_EQ(found.back(), "work");
        found.pop_back();
        EXPECT_TRUE(std::equal(first.begin(), first.end(), found.begin()));
        for (size_t i = first.size(); i < found.size(); ++i) {
          EXPECT_TRUE(optional.contains(found[i])) << found[i];
          EXPECT_GT(line[found[i]].get<double>(), 0) << found[i];
        }
        EXPECT_EQ(line["bench"], bench.name);
        EXPECT_EQ(line["case"], name);
        EXPECT_EQ(line["threads"], 1);
        if (has_dtype) {
          EXPECT_EQ(line["dtype"], dtype);
        } else {
          EXPECT_TRUE(line["dtype"].is_null());
        }
        EXPECT_GT(line["min_s"].get<double>(), 0);
        EXPECT_LE(line["min_s"].get<double>(), line["median_s"].get<double>());
        if (!line["delta_rss_mb"].is_null()) {
          EXPECT_GT(line["peak_rss_mb"].get<double>(), line["delta_rss_mb"].get<double>());
        }
        if (!has_dtype) break;
      }
    }
  }
}

TEST(BenchLines, ADsparkStepTellsItsRowsAndAgreesWithTheDenseReference) {
  for (const std::string dtype : {"f32", "bf16"}) {
    Request asked = request("dspark_train", "all-anchors", dtype);
    asked.settings.check = true;
    const OrderedJson line = line_of(asked), &work = line["work"];
    const Work definition = Works::read(tiny()).work("dspark_train", "all-anchors");
    EXPECT_EQ(work["query_rows"],
              definition.integer("batch") * definition.integer("anchors") * definition.integer("block_size"));
    // A prompt of 3 tokens leaves positions 3 .. 22 of 24 as anchors; blocks without one are dropped.
    EXPECT_EQ(work["blocks"], 2 * 20);
    EXPECT_EQ(work["resident_bytes"]["moments"], 2 * work["resident_bytes"]["masters"].get<int64_t>());
    const OrderedJson& check = work["check"];
    EXPECT_LE(check["loss_error"].get<double>(), check["loss_bound"].get<double>());
    EXPECT_LE(check["grad_norm_error"].get<double>(), check["grad_norm_bound"].get<double>());
    EXPECT_LT(check["loss"].get<double>(), line["loss"].get<double>()) << "steps on the same batch lower its loss";
  }
}

TEST(BenchLines, MuonSaysWhatItIsComparedWith) {
  for (const std::string name : {"one", "several"}) {
    const OrderedJson line = line_of(request("muon_ns", name, "f32")), &work = line["work"];
    EXPECT_EQ(work["iterations"], 5);
    EXPECT_LE(work["distance_to_plain_direct"].get<double>(), 1e-4);
    if (const auto bound = peak(line["dtype"].get<std::string>())) {
      EXPECT_GT(work["times_faster_at_peak"].get<double>(), 0);
    } else {
      EXPECT_FALSE(work.contains("times_faster_at_peak"));
    }
    EXPECT_NEAR(work["times_faster_than_plain_direct"].get<double>() * line["cpu_median_s"].get<double>() /
                    work["plain_direct_cpu_median_s"].get<double>(),
                1, 1e-4);
  }
  EXPECT_EQ(line_of(request("muon_ns", "one", "f32"))["work"]["form"], "gram");
  const OrderedJson step = line_of(request("muon_step", "gram", "bf16"))["work"];
  for (const char* plan : {"slowest_owner_times_ranks", "slowest_owner_times_ranks_packed"}) {
    for (const char* ranks : {"2", "4", "8"}) EXPECT_GE(step[plan][ranks].get<double>(), 1 - 1e-9) << plan << ranks;
  }
  EXPECT_EQ(line_of(request("muon_step", "adamw", "f32"))["work"]["parameters"], step["parameters"]);
}

TEST(BenchLines, WaysOfTrainingAreComparedInTurns) {
  for (const char* name : {"vs-adamw", "vs-replicated", "exact"}) {
    const OrderedJson work = line_of(request("dist", name, "f32"))["work"];
    EXPECT_EQ(work["pairs"], Works::read(tiny()).work("dist", name).integer("steps"));
    EXPECT_LE(work["cost_over"]["low"].get<double>(), work["cost_over"]["median"].get<double>());
    EXPECT_LE(work["cost_over"]["median"].get<double>(), work["cost_over"]["high"].get<double>());
    EXPECT_LE(work["optimizer_cpu_s"].get<double>(), work["cpu_s"].get<double>());
  }
  EXPECT_GT(line_of(request("dist", "vs-adamw", "f32"))["work"]["orthogonalise_cpu_s"].get<double>(), 0);
  const OrderedJson hidden = line_of(request("dist", "overlap", "f32"))["work"];
  EXPECT_GT(hidden["link_s"].get<double>(), 0);
  EXPECT_LE(hidden["waited_s"].get<double>(), hidden["link_s"].get<double>());
  // The same work by owners and by everybody learns the same.
  EXPECT_NEAR(line_of(request("dist", "replicated", "f32"))["loss"].get<double>(),
              line_of(request("dist", "fsdp", "f32"))["loss"].get<double>(), 1e-4);
}

TEST(BenchLines, FixedOrderComparesTheSameRowsByBothWays) {
  for (const char* dtype : {"f32", "bf16"}) {
    const OrderedJson rows = line_of(request("fixed_order", "tiny", dtype))["work"]["rows"];
    ASSERT_EQ(names(rows), (std::vector<std::string>{"1", "20"}));
    for (const auto& [count, row] : rows.items()) {
      EXPECT_NEAR(row["fixed_order_over_library"].get<double>() * row["library_cpu_ms"].get<double>() /
                      row["fixed_order_cpu_ms"].get<double>(),
                  1, 1e-4);  // lines are printed with six digits
    }
  }
}

TEST(BenchLines, TokensPerSecondAreTokensOverTheMedian) {
  const OrderedJson line = line_of(request("prefill", "tiny", "f32"));
  EXPECT_NEAR(line["tokens_per_cpu_s"].get<double>() * line["cpu_median_s"].get<double>(), 2 * 20, 0.01);
  const OrderedJson text = line_of(request("decode", "tiny", "bf16"));
  EXPECT_NEAR(text["tokens_per_cpu_s"].get<double>() * text["cpu_median_s"].get<double>(), 6, 0.01);
}

TEST(BenchLines, TheSameWorkGivesTheSameLossAndRepeatsOnlyAddSteps) {
  const OrderedJson once = line_of(request("dspark_train", "tiny", "f32"));
  EXPECT_EQ(line_of(request("dspark_train", "tiny", "f32"))["loss"], once["loss"]);
  Request shorter = request("dspark_train", "tiny", "f32");
  shorter.settings.steps = 1, shorter.settings.repeat = 2;
  EXPECT_EQ(line_of(shorter)["loss"], once["loss"]) << "1 warm-up and 2 timed steps in both";
}

TEST(BenchLines, ASpeculativeRoundIsTheSumOfItsParts) {
  const OrderedJson line = line_of(request("specdec", "tiny-t1", "f32")), &work = line["work"];
  double sum = 0;
  for (const char* part : {"target_forward", "target_head", "draft_forward", "draft_head", "markov_and_confidence",
                           "draft_draws", "target_draws", "rest"}) {
    EXPECT_GE(work[part]["cpu_ms"].get<double>(), part == std::string("rest") ? -0.01 : 0.0) << part;
    sum += work[part]["cpu_ms"].get<double>();
  }
  EXPECT_NEAR(sum, work["round"]["cpu_ms"].get<double>(), 1e-3);
  EXPECT_GT(work["markov_cpu_ms"].get<double>(), 0);
  EXPECT_GT(work["confidence_cpu_ms"].get<double>(), 0);
  EXPECT_NEAR(work["markov_cpu_ms"].get<double>() + work["confidence_cpu_ms"].get<double>(),
              work["markov_and_confidence"]["cpu_ms"].get<double>(), 1e-3);
  EXPECT_EQ(work["proposed_per_round"], 3) << "every round proposes a whole block";
}

TEST(BenchLines, ConversationsHaveTheirTokensAndTheTextIsCutIntoDocuments) {
  const OrderedJson chat = line_of(request("tokenizer", "chat-mask", "f32"));
  EXPECT_NEAR(chat["work"]["mean_tokens"].get<double>(), 512, 512 * 0.1);
  EXPECT_GT(chat["work"]["supervised_tokens"].get<int64_t>(), 0);
  const OrderedJson batch = line_of(request("tokenizer", "encode-batch", "f32")), &work = batch["work"];
  EXPECT_EQ(work["text_bytes"], 20000);
  EXPECT_NEAR(work["documents"].get<double>(), 20000.0 / 512, 1.0);
  EXPECT_EQ(work["tokens"], line_of(request("tokenizer", "encode-1doc", "f32"))["work"]["tokens"]);
  EXPECT_NEAR(batch["mb_per_cpu_s"].get<double>() * batch["cpu_median_s"].get<double>(), 0.02, 1e-5);
}

// What is shipped: long enough, and no document twice, which a cache of words would make faster than it is.
TEST(BenchLines, TheShippedTextRepeatsNothing) {
  const std::string text = read_file(resource("data/bench/text.txt"));
  EXPECT_GE(text.size(), 1'000'000u);
  std::set<std::string> documents;
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += 4096, ++count) documents.insert(text.substr(at, 4096));
  EXPECT_EQ(documents.size(), count);
}

TEST(BenchLines, AWorkThatCannotBeDoneIsAnErrorAndNotAFigure) {
  EXPECT_THROW(line_of(request("decode", "long", "f32")), Error) << "more tokens than positions";
  EXPECT_THROW(line_of(request("eagle3_train", "tiny", "f32")), Error) << "a bench of a later version";
  Request both = request("decode", "tiny", "f32");
  both.dtypes = {"f32", "bf16"};
  EXPECT_THROW(line_of(both), Error) << "two cases in one process";
}

}  // namespace
}  // namespace pacer::bench
