#include "pacer/decode/prompt_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>

#include "pacer/base/error.h"

namespace pacer::decode {

PromptMemory::Beginning PromptMemory::take(const std::vector<int64_t>& prompt, const target::Taps& taps) {
  Beginning found;
  if (cache_ && taps == taps_ && !prompt.empty()) {
    const auto common = std::mismatch(ids_.begin(), ids_.end(), prompt.begin(), prompt.end() - 1).first - ids_.begin();
    found.length = std::min<int64_t>(common, cache_->length());
  }
  if (found.length > 0) {
    found.cache = std::move(cache_);
    found.cache->crop(found.length);
    if (!taps.empty()) found.tapped = at::cat(tapped_).narrow(0, 0, found.length);
  }
  cache_.reset();
  ids_.clear();
  tapped_.clear();
  return found;
}

void PromptMemory::keep(std::unique_ptr<target::KvCache> cache, std::vector<int64_t> ids, const target::Taps& taps,
                        std::vector<at::Tensor> tapped) {
  int64_t rows = 0;
  for (const at::Tensor& piece : tapped) rows += piece.size(0);
  if (static_cast<int64_t>(ids.size()) < cache->length() || (!taps.empty() && rows != cache->length())) {
    throw Error(ErrorKind::bug, "a text of " + std::to_string(ids.size()) + " tokens and " + std::to_string(rows) +
                                    " tapped rows is kept with a cache of " + std::to_string(cache->length()));
  }
  cache_ = std::move(cache);
  ids_ = std::move(ids);
  taps_ = taps;
  tapped_ = std::move(tapped);
}

}  // namespace pacer::decode
