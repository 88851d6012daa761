// Tries what a capability table promises. A refused operator may leave a device unusable for the process, so probes run
// in processes of their own (doctor.h).
#pragma once

#include <string>
#include <vector>

#include "pacer/device/runtime.h"

namespace pacer::device {

struct Probe {
  Capability capability;
  // Returns when the device can; throws what the device says when it cannot.
  void (*run)(const Runtime& runtime);
};

// One for every capability that a single process can try.
const std::vector<Probe>& probes();

struct ProbeResult {
  Capability capability;
  bool works = false;
  std::string message;  // what the device said, one line
};

// Runs the probe of one capability here and prints {"capability", "works", "message"} on stdout: the child's part.
ProbeResult run_probe(const Runtime& runtime, const Probe& probe);

}  // namespace pacer::device
