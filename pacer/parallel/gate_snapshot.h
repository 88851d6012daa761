// A whole state as one line per tensor, so that two runs can be compared bit for bit without keeping them.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace pacer::parallel {

// "Float [256, 1024] 3f0c..." : dtype, shape and 256 bits that depend on every bit of the tensor; a change of any one
// 8-byte word changes them for certain. A tensor that holds NaN says so, and equals nothing.
std::string print_of(const at::Tensor& tensor);

using Snapshot = std::map<std::string, std::string>;  // by name

Snapshot snapshot_of(const std::map<std::string, at::Tensor>& tensors);

// "" when both have the same names with the same prints and none holds NaN; else what is different, for a person, at
// most three entries. Rejects one unit in the last place, +0 against -0, NaN whatever its bits, a name too many or too
// few, another dtype, another shape (also a scalar against one element).
std::string snapshot_difference(const Snapshot& expected, const Snapshot& found);

// One text and back, for the store.
std::string to_text(const Snapshot& snapshot);
Snapshot parse_snapshot(const std::string& text);

}  // namespace pacer::parallel
