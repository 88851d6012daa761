// Drafting without a model: what followed the last words the last time they were written (Saxena 2023).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pacer/draft/proposer.h"

namespace pacer::decode {

// Looks for the latest earlier occurrence of the newest n tokens, longest n first, in the prompt and in what was
// written since, and proposes what followed it. Its proposals are certain: one-hot distributions, also when sampling.
class PromptLookup : public draft::Proposer {
 public:
  // Throws Error{usage} unless 1 <= shortest <= longest and max_tokens >= 1.
  explicit PromptLookup(int64_t max_tokens = 5, int64_t longest = 3, int64_t shortest = 1);

  std::string name() const override { return "prompt-lookup"; }
  std::vector<int64_t> taps() const override { return {}; }
  int64_t max_tokens() const override { return max_tokens_; }
  void start(const std::vector<int64_t>& ids, const at::Tensor& tapped) override;
  draft::Proposal propose(int64_t anchor, int64_t limit, bool greedy, const draft::DrawToken& draw) override;
  void advance(const std::vector<int64_t>& tokens, const at::Tensor& tapped) override;

  int64_t longest() const { return longest_; }
  int64_t match() const { return match_; }  // tokens that the last proposal's match had in common; 0: nothing found

 private:
  int64_t max_tokens_, longest_, shortest_, match_ = 0;
  std::vector<int64_t> history_;  // everything before the anchor
};

}  // namespace pacer::decode
