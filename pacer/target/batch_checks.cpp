#include "pacer/target/batch_checks.h"

#include <algorithm>
#include <string>

#include "pacer/base/error.h"

namespace pacer::target {

void check_batch(const ModelConfig& config, const TokenBatch& batch, const Taps& taps,
                 const std::vector<KvCache*>& caches) {
  const auto bug = [](const std::string& what) { throw Error(ErrorKind::bug, "Target::forward: " + what); };
  if (batch.ids.dim() != 1 || batch.ids.scalar_type() != at::kLong || batch.positions.sizes() != batch.ids.sizes() ||
      batch.positions.scalar_type() != at::kLong) {
    bug("ids " + c10::str(batch.ids.sizes()) + " and positions " + c10::str(batch.positions.sizes()) +
        " must be two i64 vectors of one length");
  }
  if (batch.starts.empty() || batch.starts.front() != 0 || batch.starts.back() != batch.rows() ||
      !std::is_sorted(batch.starts.begin(), batch.starts.end())) {
    bug("starts must rise from 0 to the number of rows, " + std::to_string(batch.rows()));
  }
  if (batch.rows() > 0) {
    const at::Tensor ids = batch.ids.contiguous();
    const int64_t* first = ids.const_data_ptr<int64_t>();
    const auto [least, most] = std::minmax_element(first, first + ids.numel());
    const int64_t low = *least, high = *most;
    if (low < 0 || high >= config.vocab_size) {
      throw Error(ErrorKind::data,
                  "token id " + std::to_string(low < 0 ? low : high) + " is outside of the vocabulary of " +
                      std::to_string(config.vocab_size),
                  "the tokens were made by another tokenizer than the model's");
    }
  }
  for (const int64_t tap : taps) {
    if (tap < -1 || tap > config.layers - 2) {
      throw Error(
          ErrorKind::usage,
          "layer " + std::to_string(tap) + " cannot be tapped; allowed are -1 (the embedding) to " +
              std::to_string(config.layers - 2),
          "the last layer is not tapped: published drafts disagree whether that means before or after the norm");
    }
  }
  if (!caches.empty() && static_cast<int64_t>(caches.size()) != batch.sequences()) {
    bug(std::to_string(caches.size()) + " caches for " + std::to_string(batch.sequences()) + " sequences");
  }
  for (size_t i = 0; i < caches.size(); ++i) {
    if (std::find(caches.begin(), caches.begin() + static_cast<std::ptrdiff_t>(i), caches[i]) !=
        caches.begin() + static_cast<std::ptrdiff_t>(i)) {
      bug("the same cache for two sequences");
    }
  }
}

}  // namespace pacer::target
