#include "pacer/decode/confidence.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tensor.h>

#include "pacer/base/error.h"

namespace pacer::decode {
namespace {

constexpr double kClamp = 1e-8;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

size_t bin_of(double prediction, size_t bins) {
  return std::min(static_cast<size_t>(prediction * static_cast<double>(bins)), bins - 1);
}

double clamp_probability(double prediction) { return std::clamp(prediction, kClamp, 1.0 - kClamp); }

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

int64_t confident_prefix(std::span<const float> logits, double threshold) {
  if (threshold <= 0.0) return static_cast<int64_t>(logits.size());
  int64_t kept = 0;
  for (const float logit : logits) {
    if (sigmoid(static_cast<double>(logit)) < threshold) break;
    ++kept;
  }
  return kept;
}

std::vector<double> prefix_probabilities(std::span<const float> logits, std::span<const double> temperatures) {
  if (!temperatures.empty() && temperatures.size() < logits.size()) {
    throw Error(ErrorKind::data, std::to_string(temperatures.size()) + " confidence temperatures for proposals of " +
                                     std::to_string(logits.size()) + " tokens");
  }
  std::vector<double> result;
  double product = 1.0;
  // The head's own probability is what its model computes: the library's sigmoid in f32.
  const at::Tensor shares = at::sigmoid(at::tensor(at::ArrayRef<float>(logits.data(), logits.size()), at::kFloat));
  for (size_t k = 0; k < logits.size(); ++k) {
    product *= temperatures.empty() ? static_cast<double>(shares.const_data_ptr<float>()[k])
                                    : sigmoid(static_cast<double>(logits[k]) / temperatures[k]);
    result.push_back(product);
  }
  return result;
}

void Calibration::add(std::span<const double> predictions, std::span<const uint8_t> labels) {
  if (predictions.size() != labels.size()) {
    throw Error(ErrorKind::bug, "calibration: " + std::to_string(predictions.size()) + " predictions for " +
                                    std::to_string(labels.size()) + " labels");
  }
  if (positions_.size() < predictions.size()) positions_.resize(predictions.size());
  for (size_t k = 0; k < predictions.size(); ++k) {
    const double p = clamp_probability(predictions[k]);
    const bool label = labels[k] != 0;
    Sums& sums = positions_[k];
    const size_t coarse = bin_of(p, kCoarse);
    ++sums.count[coarse];
    sums.labels[coarse] += label;
    sums.predictions[coarse] += p;
    ++(label ? sums.positive : sums.negative)[bin_of(p, kFine)];
    sums.squared_error += (p - (label ? 1.0 : 0.0)) * (p - (label ? 1.0 : 0.0));
  }
}

void Calibration::add(const Calibration& other) {
  if (positions_.size() < other.positions_.size()) positions_.resize(other.positions_.size());
  for (size_t k = 0; k < other.positions_.size(); ++k) {
    Sums& sums = positions_[k];
    const Sums& more = other.positions_[k];
    for (size_t b = 0; b < kCoarse; ++b) {
      sums.count[b] += more.count[b], sums.labels[b] += more.labels[b], sums.predictions[b] += more.predictions[b];
    }
    for (size_t b = 0; b < kFine; ++b) sums.positive[b] += more.positive[b], sums.negative[b] += more.negative[b];
    sums.squared_error += more.squared_error;
  }
}

std::vector<PositionCalibration> Calibration::positions() const {
  std::vector<PositionCalibration> result;
  for (size_t k = 0; k < positions_.size(); ++k) {
    const Sums& sums = positions_[k];
    PositionCalibration figures{};
    figures.position = static_cast<int64_t>(k);
    double gap = 0.0, predictions = 0.0, labels = 0.0;
    for (size_t b = 0; b < kCoarse; ++b) {
      if (sums.count[b] == 0) continue;
      const auto count = static_cast<double>(sums.count[b]);
      const double prediction = sums.predictions[b] / count, label = static_cast<double>(sums.labels[b]) / count;
      figures.count += sums.count[b];
      gap += std::abs(prediction - label) * count;
      predictions += sums.predictions[b];
      labels += static_cast<double>(sums.labels[b]);
      const double width = 1.0 / static_cast<double>(kCoarse);
      figures.bins.push_back({static_cast<int64_t>(b), static_cast<double>(b) * width,
                              static_cast<double>(b + 1) * width, prediction, label, sums.count[b]});
    }
    if (figures.count > 0) {
      const auto total = static_cast<double>(figures.count);
      figures.ece = gap / total;
      figures.brier = sums.squared_error / total;
      figures.prediction_mean = predictions / total;
      figures.label_mean = labels / total;
    }
    // Mann-Whitney over the fine bins: a positive beats the negatives below it and half of those in its own bin.
    double wins = 0.0, below = 0.0, positives = 0.0;
    for (size_t b = 0; b < kFine; ++b) {
      const auto positive = static_cast<double>(sums.positive[b]), negative = static_cast<double>(sums.negative[b]);
      wins += positive * (below + 0.5 * negative);
      below += negative;
      positives += positive;
    }
    if (positives > 0.0 && below > 0.0) figures.auc = wins / (positives * below);
    result.push_back(std::move(figures));
  }
  return result;
}

Json Calibration::to_json() const {
  Json per_position = Json::array();
  double total = 0.0, auc_total = 0.0, ece = 0.0, auc = 0.0, brier = 0.0, prediction = 0.0, label = 0.0;
  for (const PositionCalibration& figures : positions()) {
    Json bins = Json::array();
    for (const ReliabilityBin& bin : figures.bins) {
      bins.push_back({{"bin", bin.bin},
                      {"range", {bin.low, bin.high}},
                      {"prediction", bin.average_prediction},
                      {"label", bin.average_label},
                      {"count", bin.count}});
    }
    per_position.push_back({{"position", figures.position},
                            {"count", figures.count},
                            {"ece", json_of(figures.ece)},
                            {"auc", json_of(figures.auc)},
                            {"brier", json_of(figures.brier)},
                            {"prediction_mean", json_of(figures.prediction_mean)},
                            {"label_mean", json_of(figures.label_mean)},
                            {"reliability", std::move(bins)}});
    if (figures.count == 0) continue;
    const auto weight = static_cast<double>(figures.count);
    total += weight;
    ece += weight * *figures.ece, brier += weight * *figures.brier;
    prediction += weight * *figures.prediction_mean, label += weight * *figures.label_mean;
    if (figures.auc) auc += weight * *figures.auc, auc_total += weight;
  }
  const auto mean = [](double sum, double weight) { return weight > 0.0 ? Json(sum / weight) : Json(nullptr); };
  return {{"per_position", std::move(per_position)},
          {"summary",
           {{"ece", mean(ece, total)},
            {"auc", mean(auc, auc_total)},
            {"brier", mean(brier, total)},
            {"prediction_mean", mean(prediction, total)},
            {"label_mean", mean(label, total)}}}};
}

namespace {

// 20-bin expected calibration error of predictions against labels.
double calibration_error(const std::vector<double>& predictions, const std::vector<uint8_t>& labels) {
  constexpr size_t kBins = 20;
  double sums[kBins] = {}, hits[kBins] = {};
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double p = clamp_probability(predictions[i]);
    const size_t bin = bin_of(p, kBins);
    sums[bin] += p;
    hits[bin] += labels[i];
  }
  // |mean prediction - mean label| * count = |sum of predictions - sum of labels|
  double gap = 0.0;
  for (size_t b = 0; b < kBins; ++b) gap += std::abs(sums[b] - hits[b]);
  return gap / static_cast<double>(predictions.size());
}

}  // namespace

std::vector<double> temperature_grid() {
  std::vector<double> grid;
  for (int i = 0; i < 95; ++i) grid.push_back(0.1 * std::pow(1.05, i));
  return grid;
}

TemperatureFit fit_temperatures(std::span<const ConfidenceRound> rounds, std::span<const double> grid) {
  if (grid.empty()) throw Error(ErrorKind::bug, "sequential temperature scaling without a grid");
  int64_t width = 0;
  for (const ConfidenceRound& round : rounds) width = std::max(width, round.judged);
  std::vector<double> scaled(rounds.size(), 1.0);  // product over the fixed positions
  std::vector<double> plain(rounds.size(), 1.0);   // the same with all temperatures 1
  TemperatureFit fit;
  for (int64_t k = 0; k < width; ++k) {
    std::vector<size_t> live;
    std::vector<uint8_t> labels;
    for (size_t r = 0; r < rounds.size(); ++r) {
      if (rounds[r].judged <= k) continue;
      live.push_back(r);
      labels.push_back(rounds[r].accepted > k ? 1 : 0);
    }
    const auto logit = [&](size_t r) { return static_cast<double>(rounds[r].logits[static_cast<size_t>(k)]); };
    const auto error_of = [&](const std::vector<double>& prefix, double temperature) {
      std::vector<double> predictions;
      predictions.reserve(live.size());
      for (const size_t r : live) predictions.push_back(prefix[r] * sigmoid(logit(r) / temperature));
      return calibration_error(predictions, labels);
    };
    std::vector<double> errors;
    for (const double temperature : grid) errors.push_back(error_of(scaled, temperature));
    const auto best = std::min_element(errors.begin(), errors.end());
    fit.temperatures.push_back(grid[static_cast<size_t>(best - errors.begin())]);
    fit.ece_after.push_back(*best);
    fit.ece_before.push_back(error_of(plain, 1.0));
    fit.ece.push_back(std::move(errors));
    for (const size_t r : live) {
      scaled[r] *= sigmoid(logit(r) / fit.temperatures.back());
      plain[r] *= sigmoid(logit(r));
    }
  }
  return fit;
}

}  // namespace pacer::decode
