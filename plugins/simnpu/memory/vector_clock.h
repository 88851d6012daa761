// Logical time: what an actor (a stream, or the host) knows to have happened on every stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pacer::simnpu {

using Actor = uint32_t;  // a stream's number over all devices

// Entry s is the number of the last operation of stream s that lies before now (Mattern 1989, Fidge 1988).
class VectorClock {
 public:
  uint64_t at(Actor actor) const { return actor < ticks_.size() ? ticks_[actor] : 0; }
  uint64_t advance(Actor actor) {
    if (actor >= ticks_.size()) ticks_.resize(actor + size_t{1}, 0);
    return ++ticks_[actor];
  }
  void merge(const VectorClock& other) {
    if (other.ticks_.size() > ticks_.size()) ticks_.resize(other.ticks_.size(), 0);
    for (size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }
  // Whether operation `tick` of `actor` is over for whoever has this clock.
  bool knows(Actor actor, uint64_t tick) const { return at(actor) >= tick; }

 private:
  std::vector<uint64_t> ticks_;
};

}  // namespace pacer::simnpu
