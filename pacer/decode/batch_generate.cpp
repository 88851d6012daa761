#include "pacer/decode/batch_generate.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include "pacer/base/error.h"
#include "pacer/decode/exact_forward.h"

namespace pacer::decode {
namespace {

constexpr int64_t kWorthSharing = 8;  // a copy of the cache costs more than computing a prefix shorter than this

struct Sequence {
  size_t request;
  std::unique_ptr<target::KvCache> cache;
  int64_t position;  // of the newest token
  int64_t limit;     // new tokens
  Finish limited_by;
  std::vector<int64_t> tokens;
};

// Rows of several sequences, each continuing its cache.
target::TokenBatch continuing(const std::vector<std::vector<int64_t>>& rows,
                              const std::vector<target::KvCache*>& caches) {
  std::vector<int64_t> ids, positions, starts = {0};
  for (size_t s = 0; s < rows.size(); ++s) {
    for (size_t i = 0; i < rows[s].size(); ++i) {
      ids.push_back(rows[s][i]);
      positions.push_back(caches[s]->length() + static_cast<int64_t>(i));
    }
    starts.push_back(static_cast<int64_t>(ids.size()));
  }
  return {at::tensor(ids, at::kLong), at::tensor(positions, at::kLong), std::move(starts)};
}

class Batch {
 public:
  Batch(const target::Target& target, const std::vector<BatchRequest>& requests, const BatchOptions& options,
        const std::function<bool(const BatchResult&)>& on_finished)
      : target_(target), requests_(requests), options_(options), on_finished_(on_finished) {}

  BatchStatistics run() {
    share_prefix();
    while (!statistics_.stopped && (next_ < requests_.size() || !live_.empty())) {
      fill();
      if (!statistics_.stopped && !live_.empty()) step();
    }
    watch_.lap(statistics_.other);
    return statistics_;
  }

 private:
  void share_prefix() {
    const int64_t length = common_prefix(requests_);
    if (requests_.size() < 2 || length < kWorthSharing) return;
    watch_.lap(statistics_.other);
    prefix_ = target_.new_cache(length);
    const auto& prompt = requests_[0].prompt;
    forward_prompts({std::vector<int64_t>(prompt.begin(), prompt.begin() + length)}, {prefix_.get()});
    statistics_.shared_prefix = length;
    watch_.lap(statistics_.prefill);
  }

  // Runs whole prompts, a piece of each per pass, and returns the last hidden row of each. [S, H]
  at::Tensor forward_prompts(const std::vector<std::vector<int64_t>>& rows,
                             const std::vector<target::KvCache*>& caches) {
    for (const auto& row : rows) statistics_.computed_prompt_tokens += static_cast<int64_t>(row.size());
    at::Tensor result;
    std::vector<size_t> done(rows.size(), 0);
    for (bool more = true; more;) {
      std::vector<std::vector<int64_t>> pieces;
      std::vector<target::KvCache*> piece_caches;
      std::vector<size_t> owners;
      for (size_t s = 0; s < rows.size(); ++s) {
        const size_t end = std::min(rows[s].size(), done[s] + static_cast<size_t>(kExactRows));
        if (end == done[s]) continue;
        pieces.emplace_back(rows[s].begin() + static_cast<std::ptrdiff_t>(done[s]),
                            rows[s].begin() + static_cast<std::ptrdiff_t>(end));
        piece_caches.push_back(caches[s]);
        owners.push_back(s);
        done[s] = end;
      }
      more = !pieces.empty();
      if (!more) break;
      const target::TokenBatch batch = continuing(pieces, piece_caches);
      const at::Tensor last = target_.forward(batch, {}, piece_caches).last;
      if (!result.defined()) result = at::empty({static_cast<int64_t>(rows.size()), last.size(1)}, last.options());
      for (size_t i = 0; i < owners.size(); ++i) {
        if (done[owners[i]] == rows[owners[i]].size()) {
          result[static_cast<int64_t>(owners[i])].copy_(last[batch.starts[i + 1] - 1]);
        }
      }
    }
    return result;
  }

  // Starts new texts while there is room, several prompts per pass.
  void fill() {
    while (next_ < requests_.size() && static_cast<int64_t>(live_.size()) < options_.sequences) {
      const size_t first = live_.size();
      std::vector<std::vector<int64_t>> rows;
      std::vector<target::KvCache*> caches;
      while (next_ < requests_.size() && static_cast<int64_t>(live_.size()) < options_.sequences) {
        const auto& prompt = requests_[next_].prompt;
        const auto length = static_cast<int64_t>(prompt.size());
        Sequence sequence{next_, {}, length, options_.sampling.max_new_tokens, Finish::length, {}};
        const int64_t room = target_.config().max_position - length;
        if (target_.config().max_position > 0 && room < sequence.limit) {
          sequence.limit = room, sequence.limited_by = Finish::context;
        }
        sequence.cache = prefix_ ? prefix_->clone() : target_.new_cache(length + sequence.limit);
        rows.emplace_back(prompt.begin() + statistics_.shared_prefix, prompt.end());
        caches.push_back(sequence.cache.get());
        statistics_.prompt_tokens += length;
        live_.push_back(std::move(sequence));
        ++next_;
      }
      watch_.lap(statistics_.other);
      const at::Tensor last = forward_prompts(rows, caches);
      const at::Tensor logits = target_.logits(last);
      watch_.lap(statistics_.prefill);
      take(logits, first);
      retire();
      if (statistics_.stopped) return;
    }
  }

  // One token for every text in flight.
  void step() {
    std::vector<std::vector<int64_t>> rows;
    std::vector<target::KvCache*> caches;
    for (const Sequence& sequence : live_) {
      rows.push_back({sequence.tokens.back()});
      caches.push_back(sequence.cache.get());
    }
    watch_.lap(statistics_.other);
    const at::Tensor last = target_.forward(continuing(rows, caches), {}, caches).last;
    const at::Tensor logits = target_.logits(last);
    watch_.lap(statistics_.decode);
    ++statistics_.steps;
    for (Sequence& sequence : live_) ++sequence.position;
    take(logits, 0);
    retire();
  }

  // Chooses the next token of live_[first ...] from logits [n, V], as decode_plain does.
  void take(const at::Tensor& logits, size_t first) {
    const SamplingOptions& sampling = options_.sampling;
    std::vector<int64_t> tokens;
    if (sampling.greedy()) {
      tokens = greedy_tokens(logits);
    } else {
      const at::Tensor laws = distribution(logits, sampling);
      const auto width = static_cast<size_t>(laws.size(1));
      for (size_t i = first; i < live_.size(); ++i) {
        CounterUniforms uniforms(sampling.seed, requests_[live_[i].request].sample);
        const std::span<const float> law(laws.const_data_ptr<float>() + (i - first) * width, width);
        tokens.push_back(draw_token(law, uniforms.uniform(live_[i].position - 1, 0, Draw::token)));
      }
    }
    for (size_t i = first; i < live_.size(); ++i) live_[i].tokens.push_back(tokens[i - first]);
    statistics_.new_tokens += static_cast<int64_t>(tokens.size());
    watch_.lap(statistics_.sample);
  }

  // Hands over what has ended and closes the gaps without changing the order of the rest.
  void retire() {
    const auto& stops = options_.sampling.stop_ids;
    std::vector<Sequence> rest;
    for (Sequence& sequence : live_) {
      const bool stopped = std::find(stops.begin(), stops.end(), sequence.tokens.back()) != stops.end();
      if (!stopped && static_cast<int64_t>(sequence.tokens.size()) < sequence.limit) {
        rest.push_back(std::move(sequence));
        continue;
      }
      if (statistics_.stopped) continue;
      ++statistics_.texts;
      const BatchResult result{sequence.request, std::move(sequence.tokens),
                               stopped ? Finish::stop : sequence.limited_by};
      if (!on_finished_(result)) statistics_.stopped = true;
    }
    live_ = std::move(rest);
  }

  const target::Target& target_;
  const std::vector<BatchRequest>& requests_;
  const BatchOptions& options_;
  const std::function<bool(const BatchResult&)>& on_finished_;
  std::unique_ptr<target::KvCache> prefix_;
  std::vector<Sequence> live_;
  size_t next_ = 0;
  PhaseClock watch_;
  BatchStatistics statistics_;
};

}  // namespace

int64_t common_prefix(const std::vector<BatchRequest>& requests) {
  if (requests.empty()) return 0;
  const auto& reference = requests[0].prompt;
  size_t length = reference.size();
  for (const BatchRequest& request : requests) {
    length = std::min(length, request.prompt.size());
    length =
        static_cast<size_t>(std::mismatch(reference.begin(), reference.begin() + static_cast<std::ptrdiff_t>(length),
                                          request.prompt.begin())
                                .first -
                            reference.begin());
  }
  for (const BatchRequest& request : requests) length = std::min(length, request.prompt.size() - 1);
  return static_cast<int64_t>(length);
}

BatchStatistics generate_batch(const target::Target& target, const std::vector<BatchRequest>& requests,
                               const BatchOptions& options,
                               const std::function<bool(const BatchResult&)>& on_finished) {
  options.sampling.check();
  if (options.sequences < 1) {
    throw Error(ErrorKind::usage, "batch of " + std::to_string(options.sequences) + " texts, allowed is 1 or more");
  }
  const int64_t positions = target.config().max_position;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto length = static_cast<int64_t>(requests[i].prompt.size());
    if (length == 0 || (positions > 0 && length >= positions)) {
      throw Error(ErrorKind::data, "prompt " + std::to_string(i + 1) + " holds " + std::to_string(length) +
                                       " tokens, allowed are 1 to " + std::to_string(positions - 1));
    }
  }
  const c10::InferenceMode inference;
  return Batch(target, requests, options, on_finished).run();
}

}  // namespace pacer::decode
