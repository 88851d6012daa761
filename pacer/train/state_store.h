// Hidden states that exist before training begins, because the target computed them when it wrote the rows.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pacer/target/target.h"

namespace pacer::train {

struct KeptStates {
  // tapped [n, m, H] and last [n, H] of the first n tokens, all of them or all but the last
  target::TargetOutput states;
  // log of the sum of exponentials of the logits that the last tokens were chosen from, one for each of them
  // (BatchResult::log_sums); empty: not known.
  std::vector<float> log_sums;
};

// By row id. They are taken out as they are used, so nothing is in memory twice. put() and take() are thread-safe:
// training rows are taken ahead while validation rows are.
class StateStore {
 public:
  // taps: of every row's states. memory_bytes: rows that would exceed it are not kept.
  StateStore(target::Taps taps, uint64_t memory_bytes) : taps_(std::move(taps)), memory_bytes_(memory_bytes) {}

  const target::Taps& taps() const { return taps_; }
  int64_t rows() const { return static_cast<int64_t>(kept_.size()); }
  uint64_t bytes() const { return bytes_; }

  // Throws Error{bug} for states of other shapes. False when there is no room.
  bool put(const std::string& id, std::vector<int64_t> ids, KeptStates kept);

  // What was put for this row, cut to `ids` when those end earlier; nothing when the row is not here or its tokens are
  // others.
  std::optional<KeptStates> take(const std::string& id, const std::vector<int64_t>& ids);

 private:
  struct Row {
    std::vector<int64_t> ids;
    KeptStates kept;
    uint64_t bytes() const { return kept.states.tapped.nbytes() + kept.states.last.nbytes(); }
  };
  target::Taps taps_;
  uint64_t memory_bytes_, bytes_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::string, Row> kept_;
};

}  // namespace pacer::train
