// What a simulated device refuses, as real ones do.
#pragma once

#include <string>
#include <vector>

#include "pacer/device/plugin.h"

namespace pacer::device {

// Turns on everything that the back end of this device can be told to refuse (its switches refuse_...), also what is
// off unless asked for. Before the device is opened, whose capabilities follow from them. Nothing where there is
// nothing to turn on, as on real devices.
void turn_on_refusals(const std::string& device);

// The switches that are on, for reports: rules and checks.
std::vector<std::string> switches_on(const Plugin* plugin);

}  // namespace pacer::device
