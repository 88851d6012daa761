// What `pacer doctor` prints: devices, what they can do, what is done instead, and settings that matter.
#pragma once

#include <string>

#include "pacer/base/json.h"
#include "pacer/device/runtime.h"

namespace pacer::device {

// Every back end: product, state ("works", "absent", "broken", "simulated"), note, summary, and where it works its
// devices with memory. Each is loaded in a process of its own (a broken one may end its process); simulated ones are
// named and not loaded. program: the running program, which answers `doctor --describe PRODUCT` with describe().
OrderedJson back_ends_report(const std::string& program);

// The child's part: examines one product in this process. Never throws.
OrderedJson describe(const std::string& product);

// A device that is open: its figures, capability table with what probes found (in children of `program`, which answer
// `doctor --device NAME --probe CAPABILITY` with probe_report()), collectives, and what is done instead of what it
// cannot do. probe: false leaves the probes out.
OrderedJson device_report(const Runtime& runtime, const std::string& program, bool probe);
OrderedJson probe_report(const Runtime& runtime, const std::string& capability);

// Environment variables that matter, their values and advice: general ones and those of the back ends.
OrderedJson environment_report(const Runtime& runtime);

// All of it for a person.
std::string doctor_text(const OrderedJson& report);

}  // namespace pacer::device
