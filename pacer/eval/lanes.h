// Comparing texts by several threads at once, where the times do not matter.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pacer/eval/measure.h"

namespace pacer::eval {

// Deals the prompts of every task to `lanes` threads, each with a draft of its own (make_draft may return null) and one
// intra-op thread, and gives the turns in the order of the prompts. Texts and counts are those of measure(); plain
// texts are written many at a time and have no seconds (MeasureOptions::plain_in_batch), the others have those of a
// machine that was busy with the other lanes. Needs PaceUse::off: a pacing rule learns from the texts before.
// options.on_progress is called by one lane at a time; what it or a lane throws ends all lanes and is thrown again.
std::vector<TaskResult> measure_in_lanes(const target::Target& target,
                                         const std::function<std::unique_ptr<draft::Proposer>()>& make_draft,
                                         const std::vector<Task>& tasks, const Words& words,
                                         const MeasureOptions& options, int lanes);

}  // namespace pacer::eval
