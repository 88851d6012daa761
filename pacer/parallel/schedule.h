// What a rank does in which order, as a plain list that is made once and the same on every rank.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pacer::parallel {

enum class Action {
  start_acquire,  // begin to bring the whole weights of a unit here
  wait_acquire,   // until they are here
  compute,        // run a call: forwards its segment, or backwards
  release,        // give the memory of the whole weights back
  reduce,         // the gradients of a unit are complete for this micro-batch: begin to send them
};

const char* name_of(Action action);

struct ScheduleEntry {
  Action action;
  size_t index;  // a unit; of compute: a call
  bool operator==(const ScheduleEntry&) const = default;
};

// The calls of one micro-batch in the order of the forward pass, each with the units it reads. One unit may be read by
// several calls (tied weights, a segment used twice), one call may read several units.
struct ScheduleInput {
  std::vector<std::vector<size_t>> calls;  // [call] -> units, ascending
  size_t units = 0;
  bool free_weights = false;  // whole weights exist around a call only; else they stay until the next step
  bool prefetch = true;       // the next call's weights travel while this one computes
};

struct Schedule {
  std::vector<std::vector<ScheduleEntry>> forward, backward;  // [call]; backward is walked from the last call
  // Units that no call reads: reduced at the end of the backward pass.
  std::vector<ScheduleEntry> rest;
  std::string text() const;  // one line per call and direction, first two words unique
};

// A unit is reduced once per micro-batch: behind the backward of the first call that reads it, since all others have
// then been passed. With kept weights every unit is acquired before its first use in a step and never released.
Schedule make_schedule(const ScheduleInput& input);

}  // namespace pacer::parallel
