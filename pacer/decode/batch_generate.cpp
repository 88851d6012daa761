#include "pacer/decode/batch_generate.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include "pacer/base/error.h"
#include "pacer/device/indices.h"
#include "pacer/nn/page_tensor.h"
#include "pacer/nn/vocab_loss.h"
#include "pacer/target/exact_rows.h"

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
  target::TargetOutput states;  // with keep_states: room for the whole text
  std::vector<float> log_sums;  // with keep_states: of each token
  int64_t states_kept = 0;

  // Appends rows [begin, end) of what the target gave.
  void keep(const target::TargetOutput& output, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    states.last.narrow(0, states_kept, count).copy_(output.last.narrow(0, begin, count));
    if (states.tapped.defined()) {
      states.tapped.narrow(0, states_kept, count).copy_(output.tapped.narrow(0, begin, count));
    }
    states_kept += count;
  }

  // The room that the text did not need was never written to and takes no memory.
  target::TargetOutput kept_states() const {
    const auto rows = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, 0, states_kept) : all; };
    return {rows(states.tapped), rows(states.last)};
  }
};

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
    prefix_states_ = forward_exact(target_, {std::vector<int64_t>(prompt.begin(), prompt.begin() + length)},
                                   options_.taps, {prefix_.get()});
    statistics_.computed_prompt_tokens += length;
    statistics_.shared_prefix = length;
    watch_.lap(statistics_.prefill);
  }

  void make_room(Sequence& sequence) const {
    const int64_t rows = sequence.position + sequence.limit - 1;
    const int64_t width = target_.config().hidden_size, taps = static_cast<int64_t>(options_.taps.size());
    sequence.states.last = nn::page_tensor({rows, width}, target_.dtype());
    if (taps > 0) sequence.states.tapped = nn::page_tensor({rows, taps, width}, target_.dtype());
    if (prefix_) sequence.keep(prefix_states_, 0, statistics_.shared_prefix);
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
        Sequence sequence{next_, {}, length, options_.sampling.max_new_tokens, Finish::length, {}, {}, {}, 0};
        const int64_t room = target_.config().max_position - length;
        if (target_.config().max_position > 0 && room < sequence.limit) {
          sequence.limit = room, sequence.limited_by = Finish::context;
        }
        sequence.cache = prefix_ ? prefix_->clone() : target_.new_cache(length + sequence.limit);
        if (options_.keep_states) make_room(sequence);
        rows.emplace_back(prompt.begin() + statistics_.shared_prefix, prompt.end());
        caches.push_back(sequence.cache.get());
        statistics_.prompt_tokens += length;
        statistics_.computed_prompt_tokens += length - statistics_.shared_prefix;
        live_.push_back(std::move(sequence));
        ++next_;
      }
      watch_.lap(statistics_.other);
      const target::TargetOutput output = forward_exact(target_, rows, options_.taps, caches);
      std::vector<int64_t> ends;  // the last row of every prompt
      int64_t row = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        const int64_t end = row + static_cast<int64_t>(rows[i].size());
        if (options_.keep_states) live_[first + i].keep(output, row, end);
        ends.push_back(end - 1);
        row = end;
      }
      const at::Tensor logits = target_.logits(
          at::index_select(output.last, 0, device::as_indices(at::tensor(ends, at::kLong), output.last.device())));
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
    const target::TargetOutput output = forward_exact(target_, rows, options_.taps, caches);
    const at::Tensor logits = target_.logits(output.last);
    for (size_t i = 0; options_.keep_states && i < live_.size(); ++i) {
      live_[i].keep(output, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
    }
    watch_.lap(statistics_.decode);
    ++statistics_.steps;
    for (Sequence& sequence : live_) ++sequence.position;
    take(logits, 0);
    retire();
  }

  // Chooses the next token of live_[first ...] from its row of logits [n, V], as decode_plain does.
  void take(const at::Tensor& all, size_t first) {
    const SamplingOptions& sampling = options_.sampling;
    if (options_.keep_states) {
      const at::Tensor sums = nn::log_sums_of(all);
      const float* const of = sums.const_data_ptr<float>();
      for (size_t i = first; i < live_.size(); ++i) live_[i].log_sums.push_back(of[i - first]);
    }
    const at::Tensor logits = without_padding(all, target_.config().vocab_size, sampling);
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
      BatchResult result{
          sequence.request, std::move(sequence.tokens), stopped ? Finish::stop : sequence.limited_by, {}, {}};
      if (options_.keep_states) {
        result.states = sequence.kept_states();
        result.log_sums = std::move(sequence.log_sums);
      }
      if (!on_finished_(result)) statistics_.stopped = true;
    }
    live_ = std::move(rest);
  }

  const target::Target& target_;
  const std::vector<BatchRequest>& requests_;
  const BatchOptions& options_;
  const std::function<bool(const BatchResult&)>& on_finished_;
  std::unique_ptr<target::KvCache> prefix_;
  target::TargetOutput prefix_states_;
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
  if (!options.keep_states && !options.taps.empty()) throw Error(ErrorKind::bug, "taps of states that are not kept");
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
