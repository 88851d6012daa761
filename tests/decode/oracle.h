// A draft that knows the plain text, and is right or wrong exactly where a test wants it to be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "pacer/draft/proposer.h"

namespace pacer::test {

class Oracle : public draft::Proposer {
 public:
  // token(position, slot): what slot `slot` of a proposal says about the token at this position of prompt and text.
  using Token = std::function<int64_t(int64_t position, int64_t slot)>;
  Oracle(int64_t width, Token token) : width_(width), token_(std::move(token)) {}

  std::string name() const override { return "oracle"; }
  std::vector<int64_t> taps() const override { return {}; }
  int64_t max_tokens() const override { return width_; }
  void start(const std::vector<int64_t>& ids, const at::Tensor&) override {
    length_ = static_cast<int64_t>(ids.size());
  }
  draft::Proposal propose(int64_t, int64_t limit, bool, const draft::DrawToken&) override {
    draft::Proposal proposal;
    ++proposals;
    // length_ is the anchor's position, the first draft stands behind it.
    for (int64_t slot = 0; slot < std::min(limit, width_); ++slot) {
      proposal.tokens.push_back(token_(length_ + 1 + slot, slot));
    }
    return proposal;
  }
  void advance(const std::vector<int64_t>& tokens, const at::Tensor&) override {
    length_ += static_cast<int64_t>(tokens.size());
  }

  int64_t proposals = 0;

 private:
  int64_t width_;
  Token token_;
  int64_t length_ = 0;
};

}  // namespace pacer::test
