#include "pacer/parallel/schedule.h"

#include <algorithm>

namespace pacer::parallel {
namespace {

bool reads(const std::vector<size_t>& units, size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

std::string line(const std::vector<ScheduleEntry>& entries) {
  std::string text;
  for (const ScheduleEntry& entry : entries) {
    text += std::string(text.empty() ? "" : ", ") + name_of(entry.action) + " " + std::to_string(entry.index);
  }
  return text + "\n";
}

}  // namespace

const char* name_of(Action action) {
  switch (action) {
    case Action::start_acquire:
      return "start";
    case Action::wait_acquire:
      return "wait";
    case Action::compute:
      return "compute";
    case Action::release:
      return "release";
    case Action::reduce:
      return "reduce";
  }
  return "";
}

Schedule make_schedule(const ScheduleInput& input) {
  const size_t count = input.calls.size();
  Schedule schedule;
  schedule.forward.resize(count);
  schedule.backward.resize(count);
  // Walks the calls in one direction. `next` is the call that follows there, `count` when none does.
  std::vector<bool> here(input.units, false), started(input.units, false);
  const auto walk = [&](size_t call, size_t next, std::vector<ScheduleEntry>& entries) {
    for (const size_t unit : input.calls[call]) {
      if (here[unit]) continue;
      if (!started[unit]) entries.push_back({Action::start_acquire, unit});
      started[unit] = true;
    }
    for (const size_t unit : input.calls[call]) {
      if (here[unit]) continue;
      entries.push_back({Action::wait_acquire, unit});
      here[unit] = true;
    }
    if (input.prefetch && next < count) {
      for (const size_t unit : input.calls[next]) {
        if (here[unit] || started[unit]) continue;
        entries.push_back({Action::start_acquire, unit});
        started[unit] = true;
      }
    }
    entries.push_back({Action::compute, call});
    if (!input.free_weights) return;
    for (const size_t unit : input.calls[call]) {
      if (next < count && reads(input.calls[next], unit)) continue;
      entries.push_back({Action::release, unit});
      here[unit] = started[unit] = false;
    }
  };
  // The last call is the first of the backward pass, so its weights stay.
  for (size_t call = 0; call < count; ++call) walk(call, call + 1 < count ? call + 1 : call, schedule.forward[call]);
  for (size_t call = count; call-- > 0;) {
    walk(call, call > 0 ? call - 1 : count, schedule.backward[call]);
    for (const size_t unit : input.calls[call]) {
      const bool first = std::none_of(input.calls.begin(), input.calls.begin() + static_cast<ptrdiff_t>(call),
                                      [&](const auto& units) { return reads(units, unit); });
      if (first) schedule.backward[call].push_back({Action::reduce, unit});
    }
  }
  for (size_t unit = 0; unit < input.units; ++unit) {
    if (std::none_of(input.calls.begin(), input.calls.end(), [&](const auto& units) { return reads(units, unit); })) {
      schedule.rest.push_back({Action::reduce, unit});
    }
  }
  return schedule;
}

std::string Schedule::text() const {
  std::string text;
  for (size_t call = 0; call < forward.size(); ++call) {
    text += "forward " + std::to_string(call) + " " + line(forward[call]);
  }
  for (size_t call = backward.size(); call-- > 0;) {
    text += "backward " + std::to_string(call) + " " + line(backward[call]);
  }
  return text + "backward rest " + line(rest);
}

}  // namespace pacer::parallel
