#include "pacer/bench/timed_parts.h"

#include <utility>

#include "pacer/base/error.h"

namespace pacer::bench {
namespace {

using decode::PhaseClock;
using decode::Seconds;

class TimedTarget final : public target::Target {
 public:
  TimedTarget(std::shared_ptr<const target::Target> inner, Parts& parts) : inner_(std::move(inner)), parts_(parts) {}

  target::TargetOutput forward(const target::TokenBatch& batch, const target::Taps& taps,
                               const std::vector<target::KvCache*>& caches) const override {
    PhaseClock clock;
    target::TargetOutput output = inner_->forward(batch, taps, caches);
    clock.lap(parts_.target_forward);
    return output;
  }
  at::Tensor logits(const at::Tensor& last) const override {
    if (parts_.proposing) parts_.head_before = PhaseClock::now();
    PhaseClock clock;
    at::Tensor logits = inner_->logits(last);
    clock.lap(parts_.proposing ? parts_.draft_head : parts_.target_head);
    return logits;
  }

  const target::ModelConfig& config() const override { return inner_->config(); }
  c10::Device device() const override { return inner_->device(); }
  at::ScalarType dtype() const override { return inner_->dtype(); }
  std::unique_ptr<target::KvCache> new_cache(int64_t capacity_hint) const override {
    return inner_->new_cache(capacity_hint);
  }
  bool has_stored_weights() const override { return inner_->has_stored_weights(); }
  at::Tensor embed(const at::Tensor& ids) const override { return inner_->embed(ids); }
  at::Tensor embedding_weight() const override { return inner_->embedding_weight(); }
  at::Tensor head_weight() const override { return inner_->head_weight(); }
  at::Tensor weight(const std::string& name) const override { return inner_->weight(name); }
  uint64_t weight_bytes() const override { return inner_->weight_bytes(); }

 private:
  std::shared_ptr<const target::Target> inner_;
  Parts& parts_;
};

Seconds difference(const Seconds& later, const Seconds& earlier) {
  return {later.cpu - earlier.cpu, later.wall - earlier.wall};
}

}  // namespace

std::shared_ptr<const target::Target> timed(std::shared_ptr<const target::Target> target, Parts& parts) {
  return std::make_shared<TimedTarget>(std::move(target), parts);
}

draft::Proposal TimedProposer::propose(int64_t anchor, int64_t limit, bool greedy, const draft::DrawToken& draw) {
  Seconds draws;
  const draft::DrawToken timed_draw = [&](const at::Tensor& logits, at::Tensor* probabilities) {
    PhaseClock clock;
    const int64_t token = draw(logits, probabilities);
    clock.lap(draws);
    return token;
  };
  const Seconds head_before = parts_.draft_head;
  parts_.head_before = {};
  parts_.proposing = true;
  const Seconds begin = PhaseClock::now();
  draft::Proposal proposal = inner_->propose(anchor, limit, greedy, timed_draw);
  const Seconds end = PhaseClock::now();
  parts_.proposing = false;
  if (parts_.head_before.wall == 0.0) {
    throw Error(ErrorKind::bug, name() + " did not take its logits from the target: its parts cannot be told apart");
  }
  const Seconds forward = difference(parts_.head_before, begin), head = difference(parts_.draft_head, head_before);
  Seconds rest = difference(end, begin);
  for (const Seconds& part : {forward, head, draws}) rest = difference(rest, part);
  parts_.draft_forward += forward;
  parts_.markov_confidence += rest;
  parts_.draws += draws;
  return proposal;
}

void TimedProposer::catch_up() {
  PhaseClock clock;
  inner_->catch_up();
  clock.lap(parts_.draft_forward);
}

void TimedProposer::advance(const std::vector<int64_t>& tokens, const at::Tensor& tapped) {
  PhaseClock clock;
  inner_->advance(tokens, tapped);
  clock.lap(parts_.draft_forward);
}

}  // namespace pacer::bench
