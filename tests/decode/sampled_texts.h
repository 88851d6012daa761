// Many sampled texts of the toy target, by any draft, against the law they must have.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "pacer/decode/loop.h"
#include "pacer/decode/sampling.h"
#include "tests/decode/chi_square.h"
#include "tests/decode/toy.h"

namespace pacer::test {

using decode::AcceptanceCounts;
using decode::Decoded;
using decode::DecodeOptions;
using decode::distribution;
using decode::Origin;

constexpr int64_t kVocab = 4;
constexpr int64_t kTextLength = 50;
constexpr int64_t kDraws = 200'000;
// Seeds are fixed, so a test either always passes or never; a correct rule fails one seed in a thousand at this level,
// and wrong rules are far beyond the other bound.
constexpr double kRejectBelow = 1e-3;
constexpr double kSurelyWrong = 1e-12;

struct Outcome {
  double tail;
  double acceptance_length;
  int64_t drafted, corrected, bonus;
  AcceptanceCounts counts;
};

// Counts (two tokens before, token) over many texts and compares with the target's law. proposer null: plain decoding.
//   table [V * V, V]: the target's logits
inline Outcome decode_texts(const target::Target& target, const at::Tensor& table, draft::Proposer* proposer,
                            DecodeOptions options, int64_t draws = kDraws) {
  options.sampling.max_new_tokens = kTextLength;
  options.sampling.seed = 11;
  std::vector<std::vector<int64_t>> counts(kVocab * kVocab, std::vector<int64_t>(kVocab, 0));
  AcceptanceCounts acceptance;
  Outcome run{};
  for (int64_t text = 0; text < draws / kTextLength; ++text) {
    options.sample = static_cast<uint64_t>(text);
    const std::vector<int64_t> prompt = {text % kVocab, text / kVocab % kVocab};
    const Decoded decoded =
        proposer ? decode_speculative(target, *proposer, prompt, options) : decode_plain(target, prompt, options);
    int64_t a = prompt[0], b = prompt[1];
    for (size_t i = 0; i < decoded.tokens.size(); ++i) {
      const int64_t c = decoded.tokens[i];
      ++counts[static_cast<size_t>(a * kVocab + b)][static_cast<size_t>(c)];
      a = b, b = c;
      run.drafted += decoded.origins[i] == Origin::drafted;
      run.corrected += decoded.origins[i] == Origin::corrected;
      run.bonus += decoded.origins[i] == Origin::bonus;
    }
    acceptance.add(decoded.counts());
  }
  ChiSquare statistic;
  for (int64_t a = 0; a < kVocab; ++a) {
    for (int64_t b = 0; b < kVocab; ++b) {
      const at::Tensor logits = table[a * kVocab + b];
      const at::Tensor law = distribution(logits, options.sampling);
      const std::vector<double> shares(law.const_data_ptr<float>(), law.const_data_ptr<float>() + kVocab);
      statistic.add(counts[static_cast<size_t>(a * kVocab + b)], shares);
    }
  }
  run.tail = statistic.tail();
  run.acceptance_length = acceptance.acceptance_length().value_or(1.0);
  run.counts = acceptance;
  return run;
}

inline const ToyTarget& toy_target() {
  static const ToyTarget target(kVocab, 5, 1.0);
  return target;
}

inline Outcome decode_texts(const ToyTarget& target, draft::Proposer& proposer, const DecodeOptions& options) {
  return decode_texts(target, target.table(), &proposer, options);
}

inline DecodeOptions sampled(double temperature = 0.9) {
  DecodeOptions options;
  options.sampling.temperature = temperature;
  return options;
}

// Block draft without a Markov head: a slot knows the anchor, not what was drawn before it.
inline ToyProposer block_draft() {
  const at::Tensor table = toy_table(3 * kVocab, kVocab, 21, 1.0);
  return {"block", 3, [table](int64_t k, int64_t, int64_t anchor) { return table[k * kVocab + anchor]; }};
}

// Markov head: a slot also knows the token drawn before it; close to the target, as after training.
inline ToyProposer markov_draft(ToyProposer::Confidence confidence = {}) {
  const at::Tensor noise = toy_table(3 * kVocab, kVocab, 22, 0.7);
  const at::Tensor mean = toy_target().table().view({kVocab, kVocab, kVocab}).mean(0);
  return {"markov", 3,
          [=](int64_t k, int64_t previous, int64_t) { return mean[previous] + noise[k * kVocab + previous]; },
          std::move(confidence)};
}

// A reduced draft vocabulary: two tokens can never be proposed.
inline ToyProposer reduced_draft() {
  const at::Tensor table = toy_table(3 * kVocab, kVocab, 23, 1.0);
  table.slice(1, 2).fill_(-std::numeric_limits<float>::infinity());
  return {"reduced", 3, [table](int64_t k, int64_t previous, int64_t) { return table[k * kVocab + previous]; }};
}

}  // namespace pacer::test
