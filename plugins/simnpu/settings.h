// What the simulator is told: how many devices with how much memory (environment, fixed), and its switches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pacer/device/plugin.h"

namespace pacer::simnpu {

struct Settings {
  int device_count;     // SIMNPU_DEVICE_COUNT, 0 .. 16; 2 when unset
  size_t memory_bytes;  // of each device: SIMNPU_MEMORY_MB; 4096 MiB when unset
  size_t pinned_bytes;  // of all pinned host memory: SIMNPU_PINNED_MB; 2048 MiB when unset
};

// Read once. Throws Error{usage} for a value that is no number or out of range.
const Settings& settings();

// Each is a number that tests and users change while the program runs; 0 is off. SIMNPU_SWITCHES="name=value,..."
// gives other values to begin with.
enum class Switch {
  hazard_checker,        // two accesses without an order throw
  poison,                // memory that was handed out and not written is NaN
  delay_seed,            // other than 0: kernels start late by amounts drawn from this seed
  synchronous_launches,  // counts operators that had to wait for the device; set it to 0 to begin anew
  launches,              // counts kernels
  refuse_float64,        // the rules of the device, in rules/rules.h
  refuse_int64_indices,  // off unless asked for
  refuse_zero_size,
  refuse_bfloat16_gru,
  refuse_bfloat16_logsumexp,
  refuse_event_timing,
  refuse_reduce_float64,
  refuse_reduce_bool,
  refuse_reduce_uint8,
  refuse_single_rank,
  reduced_columns,         // other than 0: rows wider than this are not reduced by one operator; off unless asked for
  ignore_visible_devices,  // the device count is what the machine has, whatever ASCEND_RT_VISIBLE_DEVICES says
};

int64_t value_of(Switch which);
inline bool on(Switch which) { return value_of(which) != 0; }
void count(Switch which);  // adds one

// The two functions of the door.
std::vector<device::Switch> list_switches();
void set_switch(const std::string& name, int64_t value);  // throws Error{usage}

}  // namespace pacer::simnpu
