// Which of a machine's devices this process may use, by each vendor's own rules, and which of them is this rank's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pacer/device/plugin.h"

namespace pacer::device {

// Ids of the devices that `value`, the text of the vendor's variable, leaves of `count` devices; unset: all of them.
//   first_valid  numbers (a leading sign and digits; what follows is ignored) or, when the first entry is a name,
//                beginnings of `uuids`; the list ends at the first entry that is no device; a device named twice
//                voids it
//   ascending    cut at the first character that is neither digit nor comma; an id at or above `count` ends the list;
//                an id that is not above its predecessor voids it
std::vector<int> visible_devices(VisibilityRule rule, const std::optional<std::string>& value, int count,
                                 const std::vector<std::string>& uuids = {});

// How many devices `value` names, there or not; an entry below 0 ends the list.
int listed_devices(const std::string& value);

// Indices, as LibTorch counts them, of the devices that are visible to this process. A runtime that applies the
// variable itself counts from 0 what it left; then the variable can only make that fewer.
std::vector<int> torch_indices(const Visibility& visibility, const std::optional<std::string>& value, int runtime_count,
                               const std::vector<std::string>& uuids = {});

// What a launcher says about this process; none where its variable is unset.
struct LaunchRanks {
  std::optional<int> local_rank, local_size, rank;
  // LOCAL_RANK, LOCAL_WORLD_SIZE and RANK. Throws Error{usage} for one that is not a number from 0 on.
  static LaunchRanks from_environment();
};

// Which of `count` visible devices is this rank's: LOCAL_RANK, else RANK modulo count, else 0. Throws Error{device},
// before anything waits for another rank, when there are fewer devices than ranks; the
// hint names the variable of `visibility` that gives more.
int local_device(const LaunchRanks& ranks, int count, const std::string& product, const Visibility& visibility);

}  // namespace pacer::device
