// Where the time of a speculative round goes, seen from outside: target and draft are wrapped, not changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pacer/decode/phase_times.h"
#include "pacer/draft/proposer.h"
#include "pacer/target/target.h"

namespace pacer::bench {

struct Parts {
  decode::Seconds target_forward, target_head;  // on behalf of the decoder
  decode::Seconds draft_forward;                // up to its logits, and taking in what was accepted
  decode::Seconds draft_head;
  decode::Seconds markov_confidence;  // from its logits to the end of the proposal, without the draws
  decode::Seconds draws;
  double confidence_cpu_s = 0;    // of markov_confidence: ProposerOptions::confidence_cpu_s
  bool proposing = false;         // the target's head works for the draft
  decode::Seconds head_before{};  // when it began to
};

// Times the calls of `target` into `parts`. Both outlive the result.
std::shared_ptr<const target::Target> timed(std::shared_ptr<const target::Target> target, Parts& parts);

// Times `proposer`, which must have been made for a target timed into the same parts and take its logits from it.
class TimedProposer final : public draft::Proposer {
 public:
  TimedProposer(std::unique_ptr<draft::Proposer> inner, Parts& parts) : inner_(std::move(inner)), parts_(parts) {}

  std::string name() const override { return inner_->name(); }
  std::vector<int64_t> taps() const override { return inner_->taps(); }
  int64_t max_tokens() const override { return inner_->max_tokens(); }
  void start(const std::vector<int64_t>& ids, const at::Tensor& tapped) override { inner_->start(ids, tapped); }
  draft::Proposal propose(int64_t anchor, int64_t limit, bool greedy, const draft::DrawToken& draw) override;
  void advance(const std::vector<int64_t>& tokens, const at::Tensor& tapped) override;
  int64_t behind() const override { return inner_->behind(); }
  void catch_up() override;

 private:
  std::unique_ptr<draft::Proposer> inner_;
  Parts& parts_;
};

}  // namespace pacer::bench
