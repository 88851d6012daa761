// Every bench in its tiny form: the line that it prints has the fields of docs/performance.md, and they fit together.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "pacer/base/error.h"
#include "pacer/bench/run.h"
#include "tests/support/files.h"

namespace pacer::bench {
namespace {

std::filesystem::path tiny() { return test::source_dir() / "tests" / "bench" / "tiny.json"; }

Request request(const std::string& bench, const std::string& name, const std::string& dtype) {
  Request request;
  request.works = tiny();
  request.bench = bench;
  request.cases = {name};
  request.dtypes = {dtype};
  request.in_process = true;
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
    for (const std::string& name : works.cases(bench.name)) {
      if (name == "long") continue;
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
        if (bench.has_dtype) {
          EXPECT_EQ(line["dtype"], dtype);
        } else {
          EXPECT_TRUE(line["dtype"].is_null());
        }
        EXPECT_GT(line["min_s"].get<double>(), 0);
        EXPECT_LE(line["min_s"].get<double>(), line["median_s"].get<double>());
        EXPECT_GT(line["peak_rss_mb"].get<double>(), line["delta_rss_mb"].get<double>());
        if (!bench.has_dtype) break;
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
  EXPECT_EQ(work["proposed_per_round"], 3) << "every round proposes a whole block";
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
