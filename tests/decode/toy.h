// A target and drafts small enough that their laws are known exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include "pacer/base/random.h"
#include "pacer/draft/proposer.h"
#include "pacer/target/target.h"

namespace pacer::test {

struct ToyCache : target::KvCache {
  std::vector<int64_t> ids;
  int64_t length() const override { return static_cast<int64_t>(ids.size()); }
  void crop(int64_t length) override {
    if (length > this->length()) throw std::logic_error("crop beyond the end");
    ids.resize(static_cast<size_t>(length));
  }
  std::unique_ptr<KvCache> clone() const override { return std::make_unique<ToyCache>(*this); }
  uint64_t bytes() const override { return ids.size() * sizeof(int64_t); }
};

// The next token depends on the last two: logits [V * V, V], row a * V + b for "... a b" (a = 0 at the very start).
// The hidden state of a position is its row number, so wrong caches, positions or taps give wrong text or an error.
class ToyTarget : public target::Target {
 public:
  ToyTarget(int64_t vocab, uint64_t seed, double sharpness);

  const target::ModelConfig& config() const override { return config_; }
  at::ScalarType dtype() const override { return at::kFloat; }
  std::unique_ptr<target::KvCache> new_cache(int64_t capacity_hint) const override;
  target::TargetOutput forward(const target::TokenBatch& batch, const target::Taps& taps,
                               const std::vector<target::KvCache*>& caches) const override;
  at::Tensor logits(const at::Tensor& last) const override;
  at::Tensor embedding_weight() const override { return {}; }
  at::Tensor head_weight() const override { return {}; }
  at::Tensor weight(const std::string&) const override { return {}; }
  uint64_t weight_bytes() const override { return 0; }

  target::ModelConfig& mutable_config() { return config_; }
  const at::Tensor& table() const { return table_; }
  // The law after "... a b", in f64.
  std::vector<double> law(int64_t a, int64_t b, double temperature) const;
  // The arg-max continuation, one token at a time.
  std::vector<int64_t> greedy(const std::vector<int64_t>& prompt, int64_t count) const;

  mutable int64_t forwards = 0, rows = 0, most_rows = 0;  // what was asked of it

 private:
  int64_t row(int64_t a, int64_t b) const { return a * vocab_ + b; }
  int64_t vocab_;
  target::ModelConfig config_;
  at::Tensor table_;  // [V * V, V] f32
};

// A draft given by its logits: of slot k after `previous` (the anchor, or what was drawn for slot k - 1).
class ToyProposer : public draft::Proposer {
 public:
  using Logits = std::function<at::Tensor(int64_t slot, int64_t previous, int64_t anchor)>;  // [V] f32
  using Confidence = std::function<float(int64_t slot, int64_t previous)>;                   // may be empty
  ToyProposer(std::string name, int64_t width, Logits logits, Confidence confidence = {})
      : name_(std::move(name)), width_(width), logits_(std::move(logits)), confidence_(std::move(confidence)) {}

  std::string name() const override { return name_; }
  std::vector<int64_t> taps() const override { return {0}; }
  int64_t max_tokens() const override { return width_; }
  void start(const std::vector<int64_t>& ids, const at::Tensor& tapped) override;
  draft::Proposal propose(int64_t anchor, int64_t limit, bool greedy, const draft::DrawToken& draw) override;
  void advance(const std::vector<int64_t>& tokens, const at::Tensor& tapped) override;

  std::vector<int64_t> history;  // what it was told was committed
  std::vector<int64_t> limits;   // of every call

 private:
  void check(const std::vector<int64_t>& tokens, const at::Tensor& tapped) const;
  std::string name_;
  int64_t width_;
  Logits logits_;
  Confidence confidence_;
};

// logits [rows, columns]: normal numbers times sharpness.
at::Tensor toy_table(int64_t rows, int64_t columns, uint64_t seed, double sharpness);

inline at::Tensor toy_table(int64_t rows, int64_t columns, uint64_t seed, double sharpness) {
  const RandomStream random(seed, Purpose::test);
  at::Tensor table = at::empty({rows, columns}, at::kFloat);
  for (int64_t i = 0; i < table.numel(); ++i) {
    table.mutable_data_ptr<float>()[i] = static_cast<float>(sharpness * random.normal(static_cast<uint64_t>(i)));
  }
  return table;
}

inline ToyTarget::ToyTarget(int64_t vocab, uint64_t seed, double sharpness)
    : vocab_(vocab), table_(toy_table(vocab * vocab, vocab, seed, 0.5 * sharpness)) {
  // Mostly the last token decides, so that a draft that knows only that one can be good.
  table_ = (table_.view({vocab, vocab, vocab}) + toy_table(vocab, vocab, seed + 1, sharpness)).view({-1, vocab});
  config_.vocab_size = vocab;
  config_.max_position = 4096;
}

inline std::unique_ptr<target::KvCache> ToyTarget::new_cache(int64_t) const { return std::make_unique<ToyCache>(); }

inline target::TargetOutput ToyTarget::forward(const target::TokenBatch& batch, const target::Taps& taps,
                                               const std::vector<target::KvCache*>& caches) const {
  if (static_cast<int64_t>(caches.size()) != batch.sequences()) throw std::logic_error("one cache per sequence");
  ++forwards;
  rows += batch.rows();
  target::TargetOutput output;
  output.last = at::empty({batch.rows(), 1}, at::kFloat);
  for (size_t s = 0; s < caches.size(); ++s) {
    auto& ids = dynamic_cast<ToyCache*>(caches[s])->ids;
    most_rows = std::max(most_rows, batch.starts[s + 1] - batch.starts[s]);
    for (int64_t t = batch.starts[s]; t < batch.starts[s + 1]; ++t) {
      if (batch.positions.const_data_ptr<int64_t>()[t] != static_cast<int64_t>(ids.size())) {
        throw std::logic_error("a position that does not continue the cache");
      }
      const int64_t before = ids.empty() ? 0 : ids.back();
      ids.push_back(batch.ids.const_data_ptr<int64_t>()[t]);
      output.last.mutable_data_ptr<float>()[t] = static_cast<float>(row(before, ids.back()));
    }
  }
  // The tap is the token itself, which a proposer can compare with what it is told.
  if (!taps.empty()) output.tapped = batch.ids.to(at::kFloat).view({-1, 1, 1});
  return output;
}

inline at::Tensor ToyTarget::logits(const at::Tensor& last) const {
  return at::index_select(table_, 0, last.view({-1}).to(at::kLong));
}

inline std::vector<double> ToyTarget::law(int64_t a, int64_t b, double temperature) const {
  std::vector<double> weights;
  double sum = 0.0;
  for (int64_t i = 0; i < vocab_; ++i) {
    const auto logit = static_cast<double>(table_.const_data_ptr<float>()[row(a, b) * vocab_ + i]);
    weights.push_back(std::exp(logit / temperature));
    sum += weights.back();
  }
  for (double& w : weights) w /= sum;
  return weights;
}

inline std::vector<int64_t> ToyTarget::greedy(const std::vector<int64_t>& prompt, int64_t count) const {
  std::vector<int64_t> text = prompt;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t before = text.size() < 2 ? 0 : text[text.size() - 2];
    const float* logits = table_.const_data_ptr<float>() + row(before, text.back()) * vocab_;
    text.push_back(std::max_element(logits, logits + vocab_) - logits);
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

inline void ToyProposer::check(const std::vector<int64_t>& tokens, const at::Tensor& tapped) const {
  if (tapped.size(0) != static_cast<int64_t>(tokens.size())) throw std::logic_error("one feature row per token");
  const at::Tensor told = tapped.contiguous();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (static_cast<int64_t>(told.const_data_ptr<float>()[i]) != tokens[i]) {
      throw std::logic_error("the features of another token");
    }
  }
}

inline void ToyProposer::start(const std::vector<int64_t>& ids, const at::Tensor& tapped) {
  check(ids, tapped);
  history = ids;
  limits.clear();
}

inline draft::Proposal ToyProposer::propose(int64_t anchor, int64_t limit, bool greedy, const draft::DrawToken& draw) {
  limits.push_back(limit);
  draft::Proposal proposal;
  std::vector<at::Tensor> laws;
  int64_t previous = anchor;
  for (int64_t k = 0; k < std::min(width_, limit); ++k) {
    if (confidence_) proposal.confidence.push_back(confidence_(k, previous));
    at::Tensor law;
    previous = draw(logits_(k, previous, anchor), greedy ? nullptr : &law);
    proposal.tokens.push_back(previous);
    if (!greedy) laws.push_back(law);
  }
  if (!laws.empty()) {
    proposal.probabilities = at::empty({static_cast<int64_t>(laws.size()), laws[0].size(0)}, at::kFloat);
    for (size_t k = 0; k < laws.size(); ++k) proposal.probabilities[static_cast<int64_t>(k)].copy_(laws[k]);
  }
  return proposal;
}

inline void ToyProposer::advance(const std::vector<int64_t>& tokens, const at::Tensor& tapped) {
  check(tokens, tapped);
  history.insert(history.end(), tokens.begin(), tokens.end());
}

}  // namespace pacer::test
