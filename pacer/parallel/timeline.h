// A schedule as it runs: what a rank works on, and which messages travel meanwhile. For people, and for tests.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pacer/parallel/mesh.h"
#include "pacer/parallel/schedule.h"

namespace pacer::parallel {

struct Timeline {
  // In order: "forward C" and "backward C" of calls, "rest" (what is still waited for behind the backward pass),
  // "norm", "update U" of units, and "forward C" of the step behind it.
  std::vector<std::string> work;
  // A message is handed over before work[issued] begins and waited for before work[waited] does.
  struct Message {
    std::string purpose;  // as ProcessGroup counts it: "reduce in the row", "acquire", ...
    size_t unit = 0;
    size_t issued = 0, waited = 0;
  };
  std::vector<Message> messages;  // by the place where they are issued
};

// One step with one micro-batch, overlapping, and the forward pass of the next. Messages of one unit and purpose count
// as one. Counts, losses, norm and the gathers of sharded gradients are waited for where they are issued and left out.
Timeline make_timeline(const ScheduleInput& input, const Mesh& mesh);

// A picture of it: work on top, below one bar a message from where it is handed over to where it is waited for.
// units: their names.
std::string timeline_svg(const Timeline& timeline, const std::vector<std::string>& units);

}  // namespace pacer::parallel
