#include "pacer/decode/acceptance.h"

#include <algorithm>
#include <cmath>

namespace pacer::decode {
namespace {

constexpr double kChange = 0.02;       // probability per round that the level is drawn anew
constexpr double kOpen = 0.05;         // share of a text's start that knows nothing of the session
constexpr double kTextShare = 0.25;    // of the session's levels that the latest text makes up
constexpr double kEnoughDrafts = 4.0;  // a text with fewer counts in proportion
constexpr double kSlotKeeps = 0.98, kSlotWeight = 8.0;

}  // namespace

const Acceptance::Weights Acceptance::kLevel = {0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97};

Acceptance::Acceptance(double expected) {
  double sum = 0.0;
  for (size_t i = 0; i < kLevels; ++i) {
    session_[i] = std::pow(kLevel[i], 2.0 * expected) * std::pow(1.0 - kLevel[i], 2.0 * (1.0 - expected));
    sum += session_[i];
  }
  for (double& weight : session_) weight /= sum;
  begin_text();
}

void Acceptance::begin_text() {
  const double share = kTextShare * std::min(1.0, seen_ / kEnoughDrafts);
  for (size_t i = 0; i < kLevels; ++i) {
    if (seen_ > 0.0) session_[i] += share * (text_[i] - session_[i]);
    text_[i] = (1.0 - kOpen) * session_[i] + kOpen / static_cast<double>(kLevels);
  }
  seen_ = 0.0;
}

void Acceptance::add(int64_t slot, double success) {
  if (slots_.size() <= static_cast<size_t>(slot)) slots_.resize(static_cast<size_t>(slot) + 1);
  // The level as it is believed to be here, the drafts of this round included.
  double mean = 0.0, sum = 0.0;
  for (size_t i = 0; i < kLevels; ++i) mean += text_[i] * kLevel[i];
  Slot& own = slots_[static_cast<size_t>(slot)];
  own.predicted = kSlotKeeps * own.predicted + mean;
  own.accepted = kSlotKeeps * own.accepted + success;
  for (size_t i = 0; i < kLevels; ++i) {
    text_[i] *= std::pow(kLevel[i], success) * std::pow(1.0 - kLevel[i], 1.0 - success);
    sum += text_[i];
  }
  for (double& weight : text_) weight /= sum;
  seen_ += 1.0;
}

void Acceptance::next_round() {
  for (size_t i = 0; i < kLevels; ++i) {
    text_[i] =
        (1.0 - kChange) * text_[i] + kChange * ((1.0 - kOpen) * session_[i] + kOpen / static_cast<double>(kLevels));
  }
}

double Acceptance::survival(int64_t drafts) const {
  double sum = 0.0;
  for (size_t i = 0; i < kLevels; ++i) sum += text_[i] * std::pow(kLevel[i], static_cast<double>(drafts));
  return sum;
}

double Acceptance::correction(int64_t slot) const {
  if (static_cast<size_t>(slot) >= slots_.size()) return 1.0;
  const Slot& own = slots_[static_cast<size_t>(slot)];
  return (own.accepted + kSlotWeight) / (own.predicted + kSlotWeight);
}

double Acceptance::rate(int64_t slot) const {
  return std::min(1.0, correction(slot) * survival(slot + 1) / survival(slot));
}

double Acceptance::tokens(int64_t drafts) const {
  double tokens = 1.0, alive = 1.0;
  for (int64_t k = 0; k < drafts; ++k) {
    alive *= rate(k);
    tokens += alive;
  }
  return tokens;
}

}  // namespace pacer::decode
