#include "pacer/decode/prompt_lookup.h"

#include <algorithm>

#include "pacer/base/error.h"

namespace pacer::decode {

PromptLookup::PromptLookup(int64_t max_tokens, int64_t longest, int64_t shortest)
    : max_tokens_(max_tokens), longest_(longest), shortest_(shortest) {
  if (max_tokens < 1 || shortest < 1 || longest < shortest) {
    throw Error(ErrorKind::usage, "prompt lookup: " + std::to_string(max_tokens) + " tokens after matches of " +
                                      std::to_string(shortest) + " to " + std::to_string(longest) +
                                      ", allowed is at least 1 each, the shortest first");
  }
}

void PromptLookup::start(const std::vector<int64_t>& ids, const at::Tensor&) { history_ = ids; }

draft::Proposal PromptLookup::propose(int64_t anchor, int64_t limit, bool, const draft::DrawToken&) {
  draft::Proposal proposal;
  std::vector<int64_t> text = history_;
  text.push_back(anchor);
  const auto length = static_cast<int64_t>(text.size());
  match_ = 0;
  for (int64_t n = std::min(longest_, length - 1); n >= shortest_; --n) {
    const auto tail = text.end() - n;
    // The match must end before the anchor, else there is nothing behind it to propose.
    for (int64_t begin = length - n - 1; begin >= 0; --begin) {
      if (!std::equal(tail, text.end(), text.begin() + begin)) continue;
      const int64_t from = begin + n;
      const int64_t count = std::min({limit, max_tokens_, length - from});
      proposal.tokens.assign(text.begin() + from, text.begin() + from + count);
      match_ = n;
      return proposal;
    }
  }
  return proposal;
}

void PromptLookup::advance(const std::vector<int64_t>& tokens, const at::Tensor&) {
  history_.insert(history_.end(), tokens.begin(), tokens.end());
}

}  // namespace pacer::decode
