// The beginning that a prompt shares with the text before it - a system message, the earlier turns of a conversation -
// is computed once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/target/target.h"

namespace pacer::decode {

// Keeps the cache and the tapped rows of the newest text of one target. A row has the same bits wherever a text was
// divided (Target's promise), so texts do not depend on what is remembered. One text at a time; not thread-safe.
class PromptMemory {
 public:
  struct Beginning {
    std::unique_ptr<target::KvCache> cache;  // holds the first `length` rows of the prompt; null: nothing is known
    at::Tensor tapped;                       // [length, m, H], undefined without taps
    int64_t length = 0;                      // shorter than the prompt: its last row is always computed
  };

  // Hands over what is known of `prompt` and forgets the rest, whatever becomes of the text.
  Beginning take(const std::vector<int64_t>& prompt, const target::Taps& taps);

  // ids: what the rows of `cache` were computed from, and perhaps more behind them. tapped: pieces [n, m, H] that lie
  // end to end and together have as many rows as `cache`, none without taps.
  void keep(std::unique_ptr<target::KvCache> cache, std::vector<int64_t> ids, const target::Taps& taps,
            std::vector<at::Tensor> tapped);

 private:
  std::unique_ptr<target::KvCache> cache_;
  std::vector<int64_t> ids_;
  target::Taps taps_;
  std::vector<at::Tensor> tapped_;
};

}  // namespace pacer::decode
