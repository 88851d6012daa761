#include "pacer/train/metrics.h"

#include <fstream>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "tests/support/files.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

std::vector<Json> lines_of(const fs::path& file) {
  std::vector<Json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(Metrics, AreRatiosOfSums) {
  draft::LossTerms terms;
  terms.ce_sum = 6, terms.ce_weight = 3;
  terms.l1_sum = 4, terms.l1_weight = 8;
  terms.confidence_sum = 1, terms.confidence_weight = 4;
  terms.confidence_abs_error_sum = 2;
  terms.accept_sum = {3, 1}, terms.accept_count = {4, 2};
  terms.correct = 3;
  terms.tau_sum = 9, terms.blocks = 4;
  terms.label_kept = 5, terms.label_total = 6;
  draft::LossOptions options;
  options.ce_alpha = 0.1, options.l1_alpha = 0.9, options.confidence_alpha = 2;
  const OrderedJson metrics = metrics_of(terms, options);
  EXPECT_DOUBLE_EQ(metrics["loss"], 0.1 * 2 + 0.9 * 0.5 + 2 * 0.25);
  EXPECT_DOUBLE_EQ(metrics["ce"], 2);
  EXPECT_EQ(metrics["accept"], (OrderedJson{0.75, 0.5}));
  EXPECT_DOUBLE_EQ(metrics["tau"], 2.25);
  EXPECT_DOUBLE_EQ(metrics["correct"], 0.5);
  EXPECT_DOUBLE_EQ(metrics["confidence_error"], 0.5);
  EXPECT_FALSE(metrics_of(draft::LossTerms{}, options).contains("confidence"));
}

TEST(Metrics, ContinueBehindTheCheckpoint) {
  const pacer::test::TemporaryFolder temporary;
  const fs::path file = temporary.path() / "metrics.jsonl";
  {
    MetricsLog log(file, {}, std::nullopt);
    for (int64_t step = 1; step <= 6; ++step) log.append({{"kind", "train"}, {"step", step}, {"loss", 0.5}});
  }
  std::ofstream(file, std::ios::app) << "{\"kind\": \"train\", \"step\": 7, \"lo";  // the power went
  {
    MetricsLog log(file, {}, 4);
    log.append({{"kind", "start"}, {"step", 4}});
    log.append({{"kind", "train"}, {"step", 5}, {"loss", 0.25}});
  }
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[3]["step"], 4);
  EXPECT_EQ(lines[4]["kind"], "start");
  EXPECT_EQ(lines[5]["loss"], 0.25);
  {
    MetricsLog fresh(file, {}, std::nullopt);
  }
  EXPECT_TRUE(lines_of(file).empty());  // a run that begins anew has no past
}

TEST(Metrics, BecomeScalarsOfTensorBoard) {
  const pacer::test::TemporaryFolder temporary;
  const fs::path events = temporary.path() / "tensorboard";
  MetricsLog log(temporary.path() / "metrics.jsonl", events, std::nullopt);
  log.append({{"kind", "validation"}, {"step", 3}, {"tau", 2.5}, {"accept", {0.5, 0.25}}});
  log.append({{"kind", "start"}, {"step", 3}, {"rows", 5}});
  std::string content;
  for (const auto& entry : fs::directory_iterator(events)) content += read_file(entry.path());
  for (const char* tag : {"validation/tau", "validation/accept/1", "validation/accept/2"}) {
    EXPECT_NE(content.find(tag), std::string::npos) << tag;
  }
  EXPECT_EQ(content.find("validation/step"), std::string::npos);
  EXPECT_EQ(content.find("start/rows"), std::string::npos);
}

}  // namespace
}  // namespace pacer::train
