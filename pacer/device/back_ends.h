// From a product's name to a back end that works, or to the reason why it does not.
#pragma once

#include <string>
#include <vector>

#include "pacer/device/plugin.h"

namespace pacer::device {

// CUDA needs no library of ours: LibTorch brings it, and this entry describes it.
const Plugin& cuda_back_end();

// The description of a product; null: no library brings it. Opens a library, loads nothing. Throws Error{device} for a
// broken library.
const Plugin* find_back_end(const std::string& product);

struct Availability {
  const Plugin* plugin = nullptr;
  std::vector<int> devices;  // torch's indices of those that are visible
  std::string note;          // what was found, or why there is nothing
  bool there() const { return !devices.empty(); }
};

// Loads the product's software and counts its devices. Throws Error{device} when it is there and broken, and when this
// process has another foreign back end already: LibTorch has room for one, and prefers it to CUDA.
Availability examine(const std::string& product);

// The foreign back end of this process; null: none so far.
const Plugin* loaded_foreign_back_end();

}  // namespace pacer::device
