// What a confidence head is good for: cutting proposals, and whether its probabilities are true.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::decode {

// Leading slots before the first sigmoid(logit) < threshold; all of them when threshold is 0. The rule reads slot k's
// own confidence, which depends on tokens before slot k only: cutting there leaves the output law as it is.
int64_t confident_prefix(std::span<const float> logits, double threshold);

// Predicted probability that drafts 0..k are all accepted: product over i <= k of sigmoid(logit_i / temperature_i),
// f64. temperatures: empty, or one per slot (sequential temperature scaling).
std::vector<double> prefix_probabilities(std::span<const float> logits, std::span<const double> temperatures = {});

struct ReliabilityBin {
  int64_t bin;
  double low, high, average_prediction, average_label;
  int64_t count;
};

struct PositionCalibration {
  int64_t position, count;
  std::optional<double> ece;    // expected calibration error over 20 equal bins
  std::optional<double> auc;    // area under the ROC curve over 1000 bins, ties 1/2; undefined with one class only
  std::optional<double> brier;  // mean squared error
  std::optional<double> prediction_mean, label_mean;
  std::vector<ReliabilityBin> bins;  // the occupied ones
};

// Sums of predictions and labels per position; they add over prompts, and every figure is read from them.
class Calibration {
 public:
  // predictions[k]: that drafts 0..k are all accepted, clamped to [1e-8, 1 - 1e-8]; labels[k]: whether they were.
  // As long as the judged proposal.
  void add(std::span<const double> predictions, std::span<const uint8_t> labels);
  void add(const Calibration& other);
  bool empty() const { return positions_.empty(); }

  std::vector<PositionCalibration> positions() const;
  // {"per_position": [...], "summary": {...}}; the summary weighs positions by their count, the AUC over positions
  // where it is defined. Undefined figures are null.
  Json to_json() const;

 private:
  static constexpr size_t kCoarse = 20, kFine = 1000;
  struct Sums {
    std::vector<int64_t> count = std::vector<int64_t>(kCoarse, 0), labels = std::vector<int64_t>(kCoarse, 0);
    std::vector<double> predictions = std::vector<double>(kCoarse, 0.0);
    std::vector<int64_t> positive = std::vector<int64_t>(kFine, 0), negative = std::vector<int64_t>(kFine, 0);
    double squared_error = 0.0;
  };
  std::vector<Sums> positions_;
};

// One verified proposal, for fitting temperatures.
struct ConfidenceRound {
  std::vector<float> logits;
  int64_t judged = 0, accepted = 0;
};

struct TemperatureFit {
  std::vector<double> temperatures;           // [K]
  std::vector<double> ece_before, ece_after;  // [K] over the rounds given
  std::vector<std::vector<double>> ece;       // [K][grid]
};

// Sequential temperature scaling: for k = 0, 1, ... the T_k of the grid with the smallest 20-bin ECE of
//   prod_{i<k} sigmoid(z_i / T_i) * sigmoid(z_k / T_k)
// against "drafts 0..k accepted", over rounds with more than k judged drafts; earlier temperatures stay fixed and the
// first minimum wins.
TemperatureFit fit_temperatures(std::span<const ConfidenceRound> rounds, std::span<const double> grid);

// 0.1 * 1.05^i, i = 0..94: from a tenth to ten.
std::vector<double> temperature_grid();

}  // namespace pacer::decode
