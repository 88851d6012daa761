// Rows to micro-batches: packed rows need no padding, so a batch is bounded by its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pacer::data {

struct PackLimits {
  int64_t tokens = 0;  // of all rows of a micro-batch together
  int64_t rows = 0;    // 0: any number
};

// Cuts `order` (indices into `lengths`, as epoch_order gives them) into micro-batches. Rows stay in this order and each
// is used once; a batch is closed when the next row would break a limit. So the cut is a function of its arguments:
// the same on every rank, after a resume, and for any number of processes.
// lengths: [row] tokens. Throws Error{usage}: a limit that is not positive, or a row longer than a whole batch; with
// Error{bug} an index out of range.
std::vector<std::vector<int64_t>> pack_rows(std::span<const int64_t> lengths, std::span<const int64_t> order,
                                            const PackLimits& limits);

}  // namespace pacer::data
