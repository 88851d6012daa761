// The toy target and any draft on a clock that only they move, so that tests of a rule that measures are exact.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "pacer/draft/proposer.h"
#include "tests/decode/toy.h"

namespace pacer::test {

// What things cost, in plain steps of the target.
struct Prices {
  std::function<double(int64_t rows)> target = [](int64_t rows) { return 1.0 + 0.03 * static_cast<double>(rows - 1); };
  double proposal = 0.2, catching_up = 0.002;  // the latter per token
};

class CostedTarget : public ToyTarget {
 public:
  CostedTarget(int64_t vocab, uint64_t seed, double sharpness, double& clock, Prices prices)
      : ToyTarget(vocab, seed, sharpness), clock_(clock), prices_(std::move(prices)) {}
  target::TargetOutput forward(const target::TokenBatch& batch, const target::Taps& taps,
                               const std::vector<target::KvCache*>& caches) const override {
    clock_ += prices_.target(batch.rows());
    return ToyTarget::forward(batch, taps, caches);
  }

 private:
  double& clock_;
  Prices prices_;
};

// Another draft with a price; its catching up is put off, as block drafts do it.
class CostedProposer : public draft::Proposer {
 public:
  CostedProposer(draft::Proposer& inner, double& clock, Prices prices)
      : inner_(inner), clock_(clock), prices_(std::move(prices)) {}

  std::string name() const override { return inner_.name(); }
  std::vector<int64_t> taps() const override { return inner_.taps(); }
  int64_t max_tokens() const override { return inner_.max_tokens(); }
  void start(const std::vector<int64_t>& ids, const at::Tensor& tapped) override {
    inner_.start(ids, tapped);
    behind_ = static_cast<int64_t>(ids.size());
  }
  draft::Proposal propose(int64_t anchor, int64_t limit, bool greedy, const draft::DrawToken& draw) override {
    catch_up();
    clock_ += prices_.proposal;
    return inner_.propose(anchor, limit, greedy, draw);
  }
  void advance(const std::vector<int64_t>& tokens, const at::Tensor& tapped) override {
    inner_.advance(tokens, tapped);
    behind_ += static_cast<int64_t>(tokens.size());
  }
  int64_t behind() const override { return behind_; }
  void catch_up() override {
    clock_ += prices_.catching_up * static_cast<double>(behind_);
    most_caught_up = std::max(most_caught_up, std::exchange(behind_, 0));
  }

  int64_t most_caught_up = 0;

 private:
  draft::Proposer& inner_;
  double& clock_;
  Prices prices_;
  int64_t behind_ = 0;
};

}  // namespace pacer::test
