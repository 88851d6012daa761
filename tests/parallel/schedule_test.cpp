#include "pacer/parallel/schedule.h"

#include <set>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace pacer::parallel {
namespace {

using ::testing::ElementsAre;
using E = ScheduleEntry;

TEST(Schedule, TheNextWeightsTravelWhileACallComputes) {
  const Schedule schedule = make_schedule({.calls = {{0}, {1}}, .units = 2, .free_weights = true});
  EXPECT_THAT(schedule.forward[0],
              ElementsAre(E{Action::start_acquire, 0}, E{Action::wait_acquire, 0}, E{Action::start_acquire, 1},
                          E{Action::compute, 0}, E{Action::release, 0}));
  EXPECT_THAT(schedule.forward[1], ElementsAre(E{Action::wait_acquire, 1}, E{Action::compute, 1}))
      << "the last call is the first of the backward pass";
  EXPECT_THAT(schedule.backward[1], ElementsAre(E{Action::start_acquire, 0}, E{Action::compute, 1},
                                                E{Action::release, 1}, E{Action::reduce, 1}));
  EXPECT_THAT(schedule.backward[0], ElementsAre(E{Action::wait_acquire, 0}, E{Action::compute, 0},
                                                E{Action::release, 0}, E{Action::reduce, 0}));
}

TEST(Schedule, ASharedUnitIsReducedBehindItsEarliestCall) {
  const Schedule schedule = make_schedule({.calls = {{0, 1}, {2}, {0}}, .units = 4});
  EXPECT_THAT(schedule.backward[2], ElementsAre(E{Action::compute, 2}));
  EXPECT_THAT(schedule.backward[0], ElementsAre(E{Action::compute, 0}, E{Action::reduce, 0}, E{Action::reduce, 1}));
  EXPECT_THAT(schedule.rest, ElementsAre(E{Action::reduce, 3})) << "read by no call";
}

// Weights are there when a call computes, memory is bounded, every unit is reduced once and not before it is complete.
RC_GTEST_PROP(ScheduleProperties, ComputesWithItsWeightsAndReducesOnce, ()) {
  const auto units = *rc::gen::inRange<size_t>(1, 6);
  const auto calls = *rc::gen::inRange<size_t>(0, 8);
  ScheduleInput input{.calls = {}, .units = units};
  for (size_t call = 0; call < calls; ++call) {
    const auto read = *rc::gen::container<std::set<size_t>>(rc::gen::inRange<size_t>(0, units));
    input.calls.emplace_back(read.begin(), read.end());
  }
  input.free_weights = *rc::gen::arbitrary<bool>();
  input.prefetch = *rc::gen::arbitrary<bool>();
  const Schedule schedule = make_schedule(input);
  std::set<size_t> here, started;
  std::vector<int> reduced(units, 0), uses(units, 0);
  const auto follow = [&](const std::vector<ScheduleEntry>& entries, size_t call, bool backward) {
    for (const auto& [action, index] : entries) {
      if (action == Action::start_acquire) RC_ASSERT(started.insert(index).second);
      if (action == Action::wait_acquire) {
        RC_ASSERT(started.contains(index));
        RC_ASSERT(here.insert(index).second);
      }
      if (action == Action::release) {
        RC_ASSERT(here.erase(index) == 1u);
        started.erase(index);
      }
      if (action == Action::compute) {
        RC_ASSERT(index == call);
        for (const size_t unit : input.calls[call]) {
          RC_ASSERT(here.contains(unit));
          uses[unit] += backward ? -1 : 1;
        }
        // At most what this call and its neighbour read is here.
        if (input.free_weights) RC_ASSERT(here.size() <= input.calls[call].size() + units);
      }
      if (action == Action::reduce) {
        RC_ASSERT(uses[index] == 0);
        ++reduced[index];
      }
    }
  };
  for (size_t call = 0; call < calls; ++call) follow(schedule.forward[call], call, false);
  for (size_t call = calls; call-- > 0;) follow(schedule.backward[call], call, true);
  follow(schedule.rest, 0, true);
  for (const int times : reduced) RC_ASSERT(times == 1);
  if (input.free_weights) {
    RC_ASSERT(here.empty());
    RC_ASSERT(started.empty());
  }
}

}  // namespace
}  // namespace pacer::parallel
