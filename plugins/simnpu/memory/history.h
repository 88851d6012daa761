// The accesses of one block of memory that a later access may still race with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugins/simnpu/memory/region.h"
#include "plugins/simnpu/memory/vector_clock.h"

namespace pacer::simnpu {

struct Access {
  Region region;
  bool write;
};

struct PastAccess {
  Access access;
  Actor actor;
  uint64_t tick;
  const std::string* kernel;  // interned
};

class History {
 public:
  // An earlier access that `access` would race with for somebody who knows `clock`: both touch a byte, one writes,
  // and the earlier one is not over. Null: none.
  const PastAccess* conflict(const Access& access, const VectorClock& clock) const;

  // To be called when there is no conflict. Forgets what can never race again: what every later launch knows to be
  // over (`everyone`), and what this access stands for from now on.
  void add(PastAccess access, const VectorClock& everyone);

  // Accesses that are not over for `clock`.
  template <class Visit>
  void for_each_open(const VectorClock& clock, const Visit& visit) const {
    for (const PastAccess& past : past_) {
      if (!clock.knows(past.actor, past.tick)) visit(past);
    }
  }
  void take(History& other);                           // a block that is joined to this one
  History within(uintptr_t from, uintptr_t to) const;  // of a part that is split off
  void forget_all_but_latest();
  const PastAccess* latest() const { return past_.empty() ? nullptr : &past_.back(); }
  size_t size() const { return past_.size(); }

 private:
  std::vector<PastAccess> past_;
};

}  // namespace pacer::simnpu
