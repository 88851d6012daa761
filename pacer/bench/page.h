// The lines of a run as one HTML page, each figure beside its limit.
#pragma once

#include <string>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::bench {

// Self-contained: no script, no font, no image from elsewhere. lines: as run_benches gave them; limits come from those
// of `roofline` among them. Lines whose wall time on one thread is far above their CPU time are marked: the machine was
// busy.
std::string render_page(const std::vector<OrderedJson>& lines);

// Whether a line of one thread waited for the processor: wall time above 1.2 times its CPU time.
bool was_disturbed(const OrderedJson& line);

}  // namespace pacer::bench
