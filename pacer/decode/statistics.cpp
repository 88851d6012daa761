#include "pacer/decode/statistics.h"

namespace pacer::decode {
namespace {

std::optional<double> ratio(int64_t numerator, int64_t denominator) {
  if (denominator == 0) return std::nullopt;
  return static_cast<double>(numerator) / static_cast<double>(denominator);
}

std::vector<std::optional<double>> ratios(const std::vector<int64_t>& numerators,
                                          const std::vector<int64_t>& denominators) {
  std::vector<std::optional<double>> result;
  for (size_t k = 0; k < numerators.size(); ++k) result.push_back(ratio(numerators[k], denominators[k]));
  return result;
}

void widen(std::vector<int64_t>& counts, size_t size) {
  if (counts.size() < size) counts.resize(size, 0);
}

void add_to(std::vector<int64_t>& sums, const std::vector<int64_t>& more) {
  widen(sums, more.size());
  for (size_t k = 0; k < more.size(); ++k) sums[k] += more[k];
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json json_of(const std::vector<std::optional<double>>& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(json_of(value));
  return list;
}

}  // namespace

void AcceptanceCounts::add(const RoundRecord& round) {
  ++rounds;
  kept += round.kept();
  proposed += round.proposed;
  accepted += round.accepted;
  accepted_raw += round.accepted_raw;
  idle += round.source == Source::none;
  looked_up += round.source == Source::lookup;
  trials += round.trial;
  const auto width = static_cast<size_t>(round.proposed);
  widen(proposed_at, width), widen(accepted_at, width), widen(reached_at, width);
  for (int64_t k = 0; k < round.proposed; ++k) {
    const auto slot = static_cast<size_t>(k);
    ++proposed_at[slot];
    if (round.accepted >= k) ++reached_at[slot];
    if (round.accepted > k) ++accepted_at[slot];
  }
}

void AcceptanceCounts::add(const AcceptanceCounts& other) {
  samples += other.samples;
  rounds += other.rounds;
  kept += other.kept;
  proposed += other.proposed;
  accepted += other.accepted;
  accepted_raw += other.accepted_raw;
  idle += other.idle;
  looked_up += other.looked_up;
  trials += other.trials;
  add_to(proposed_at, other.proposed_at);
  add_to(accepted_at, other.accepted_at);
  add_to(reached_at, other.reached_at);
}

std::optional<double> AcceptanceCounts::acceptance_length() const { return ratio(kept, rounds); }
std::optional<double> AcceptanceCounts::drafts_per_round() const { return ratio(proposed, rounds); }
std::optional<double> AcceptanceCounts::verify_rate() const { return ratio(kept, proposed + rounds); }
std::vector<std::optional<double>> AcceptanceCounts::survival() const { return ratios(accepted_at, proposed_at); }
std::vector<std::optional<double>> AcceptanceCounts::conditional() const { return ratios(accepted_at, reached_at); }

Json AcceptanceCounts::to_json() const {
  return {{"samples", samples},
          {"rounds", rounds},
          {"tokens_after_first", kept},
          {"proposed", proposed},
          {"accepted", accepted},
          {"accepted_raw", accepted_raw},
          {"idle_rounds", idle},
          {"lookup_rounds", looked_up},
          {"trial_rounds", trials},
          {"proposed_at", proposed_at},
          {"accepted_at", accepted_at},
          {"acceptance_length", json_of(acceptance_length())},
          {"drafts_per_round", json_of(drafts_per_round())},
          {"verify_rate", json_of(verify_rate())},
          {"survival", json_of(survival())},
          {"conditional", json_of(conditional())}};
}

}  // namespace pacer::decode
