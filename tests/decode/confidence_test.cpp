#include "pacer/decode/confidence.h"

#include <cmath>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::decode {
namespace {

constexpr double kTolerance = 1e-9;

std::vector<ConfidenceRound> golden_rounds() {
  const test::GoldenTensors golden("spec_sampling/calibration.safetensors");
  const at::Tensor logits = golden["confidence_logits"], mask = golden["accept_prefix_mask"];
  const at::Tensor length = golden["effective_length"];
  std::vector<ConfidenceRound> rounds;
  for (int64_t r = 0; r < logits.size(0); ++r) {
    ConfidenceRound round;
    const float* row = logits.const_data_ptr<float>() + r * logits.size(1);
    round.logits.assign(row, row + logits.size(1));
    round.judged = length[r].item<int64_t>();
    for (int64_t k = 0; k < round.judged; ++k) round.accepted += mask[r][k].item<int64_t>();
    rounds.push_back(std::move(round));
  }
  return rounds;
}

void add_round(Calibration& calibration, const ConfidenceRound& round) {
  std::vector<double> predictions = prefix_probabilities(round.logits);
  predictions.resize(static_cast<size_t>(round.judged));
  std::vector<uint8_t> labels;
  for (int64_t k = 0; k < round.judged; ++k) labels.push_back(round.accepted > k ? 1 : 0);
  calibration.add(predictions, labels);
}

void expect_equal(const Json& found, const nlohmann::json& expected, const std::string& what) {
  if (expected.is_null()) {
    EXPECT_TRUE(found.is_null()) << what;
    return;
  }
  ASSERT_TRUE(found.is_number()) << what;
  EXPECT_NEAR(found.get<double>(), expected.get<double>(), kTolerance) << what;
}

void expect_golden(const Calibration& calibration, const nlohmann::json& golden) {
  const Json found = calibration.to_json();
  ASSERT_EQ(found["per_position"].size(), golden["per_position"].size());
  for (size_t k = 0; k < golden["per_position"].size(); ++k) {
    const Json& position = found["per_position"][k];
    const nlohmann::json& expected = golden["per_position"][k];
    const std::string place = "position " + std::to_string(k) + " ";
    expect_equal(position["count"], expected["total_weight"], place + "count");
    expect_equal(position["ece"], expected["ece"], place + "ece");
    expect_equal(position["auc"], expected["auc"], place + "auc");
    expect_equal(position["brier"], expected["brier"], place + "brier");
    expect_equal(position["prediction_mean"], expected["pred_mean"], place + "prediction");
    expect_equal(position["label_mean"], expected["target_mean"], place + "label");
    size_t occupied = 0;
    for (const nlohmann::json& bin : expected["reliability"]) {
      if (bin["weight"].get<double>() == 0.0) continue;
      ASSERT_LT(occupied, position["reliability"].size()) << place;
      const Json& own = position["reliability"][occupied++];
      EXPECT_EQ(own["bin"].get<int64_t>(), bin["bin"].get<int64_t>()) << place;
      expect_equal(own["prediction"], bin["avg_pred"], place + "bin prediction");
      expect_equal(own["label"], bin["avg_target"], place + "bin label");
      expect_equal(own["count"], bin["weight"], place + "bin count");
    }
    EXPECT_EQ(occupied, position["reliability"].size()) << place;
  }
  expect_equal(found["summary"]["ece"], golden["summary"]["ece_mean"], "summary ece");
  expect_equal(found["summary"]["auc"], golden["summary"]["auc_mean"], "summary auc");
  expect_equal(found["summary"]["brier"], golden["summary"]["brier_mean"], "summary brier");
  expect_equal(found["summary"]["prediction_mean"], golden["summary"]["pred_mean"], "summary prediction");
  expect_equal(found["summary"]["label_mean"], golden["summary"]["target_mean"], "summary label");
}

TEST(Calibration, EqualsTheGoldenFigures) {
  Calibration first, second;
  const std::vector<ConfidenceRound> rounds = golden_rounds();
  for (size_t r = 0; r < rounds.size(); ++r) add_round(r % 3 ? first : second, rounds[r]);
  first.add(second);
  expect_golden(first, test::golden_json("spec_sampling/calibration.json"));
}

TEST(Calibration, EqualsTheGoldenFiguresAtBinBordersAndWithOneClass) {
  const nlohmann::json golden = test::golden_json("spec_sampling/calibration_edge.json");
  Calibration calibration;
  for (const nlohmann::json& update : golden["updates"]) {
    calibration.add(update[0].get<std::vector<double>>(), update[1].get<std::vector<uint8_t>>());
  }
  expect_golden(calibration, golden);
}

TEST(Calibration, WithoutRoundsEveryFigureIsNull) {
  const Calibration calibration;
  EXPECT_TRUE(calibration.empty());
  EXPECT_TRUE(calibration.to_json()["summary"]["ece"].is_null());
}

TEST(ConfidentPrefix, EqualsTheGoldenLengths) {
  const nlohmann::json cases = test::golden_json("spec_sampling/threshold.json");
  ASSERT_GE(cases.size(), 10u);
  for (const nlohmann::json& expected : cases) {
    const auto logits = expected["confidence_logits"].get<std::vector<float>>();
    EXPECT_EQ(confident_prefix(logits, expected["threshold"].get<double>()), expected["prefix_length"].get<int64_t>())
        << expected.dump();
  }
}

TEST(FitTemperatures, FindsTheGoldenTemperatures) {
  const nlohmann::json golden = test::golden_json("spec_sampling/sts.json");
  const std::vector<double> grid = golden["grid"].get<std::vector<double>>();
  const std::vector<ConfidenceRound> rounds = golden_rounds();
  const TemperatureFit fit = fit_temperatures(rounds, grid);
  ASSERT_EQ(fit.temperatures.size(), golden["temperatures"].size());
  for (size_t k = 0; k < fit.temperatures.size(); ++k) {
    for (size_t g = 0; g < grid.size(); ++g) {
      EXPECT_NEAR(fit.ece[k][g], golden["ece_per_grid_point"][k][g].get<double>(), kTolerance) << k << " " << g;
    }
    EXPECT_NEAR(fit.temperatures[k], golden["temperatures"][k].get<double>(), 1e-12) << k;
    EXPECT_NEAR(fit.ece_before[k], golden["ece_before"][k].get<double>(), kTolerance) << k;
    EXPECT_NEAR(fit.ece_after[k], golden["ece_after"][k].get<double>(), kTolerance) << k;
  }
  const std::vector<double> own = temperature_grid();
  ASSERT_EQ(own.size(), grid.size());
  for (size_t g = 0; g < grid.size(); ++g) EXPECT_NEAR(own[g], grid[g], 1e-12);
}

TEST(FitTemperatures, TheFittedTemperaturesGiveTheFittedError) {
  const std::vector<ConfidenceRound> rounds = golden_rounds();
  const TemperatureFit fit = fit_temperatures(rounds, temperature_grid());
  Calibration calibration;
  for (const ConfidenceRound& round : rounds) {
    std::vector<double> predictions = prefix_probabilities(round.logits, fit.temperatures);
    predictions.resize(static_cast<size_t>(round.judged));
    std::vector<uint8_t> labels;
    for (int64_t k = 0; k < round.judged; ++k) labels.push_back(round.accepted > k ? 1 : 0);
    calibration.add(predictions, labels);
  }
  const auto positions = calibration.positions();
  for (size_t k = 0; k < positions.size(); ++k) EXPECT_NEAR(*positions[k].ece, fit.ece_after[k], kTolerance) << k;
}

}  // namespace
}  // namespace pacer::decode
