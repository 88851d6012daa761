#include "plugins/simnpu/memory/history.h"

#include <algorithm>
#include <utility>

namespace pacer::simnpu {

const PastAccess* History::conflict(const Access& access, const VectorClock& clock) const {
  for (const PastAccess& past : past_) {
    if ((access.write || past.access.write) && !clock.knows(past.actor, past.tick) &&
        access.region.overlaps(past.access.region)) {
      return &past;
    }
  }
  return nullptr;
}

void History::add(PastAccess added, const VectorClock& everyone) {
  // Whoever comes after a write comes after everything that the write came after. A read stands only for earlier reads
  // of its own stream: reads of different streams have no order.
  const auto gone = [&](const PastAccess& past) {
    if (everyone.knows(past.actor, past.tick)) return true;
    if (!added.access.write && (past.access.write || past.actor != added.actor)) return false;
    return added.access.region.covers(past.access.region);
  };
  past_.erase(std::remove_if(past_.begin(), past_.end(), gone), past_.end());
  past_.push_back(std::move(added));
}

void History::forget_all_but_latest() {
  if (past_.size() > 1) past_.erase(past_.begin(), past_.end() - 1);
}

void History::take(History& other) {
  past_.insert(past_.end(), std::make_move_iterator(other.past_.begin()), std::make_move_iterator(other.past_.end()));
  other.past_.clear();
}

History History::within(uintptr_t from, uintptr_t to) const {
  History part;
  for (const PastAccess& past : past_) {
    if (past.access.region.begin() < to && from < past.access.region.end()) part.past_.push_back(past);
  }
  return part;
}

}  // namespace pacer::simnpu
