#include "pacer/data/packing.h"

#include <string>

#include "pacer/base/error.h"

namespace pacer::data {

std::vector<std::vector<int64_t>> pack_rows(std::span<const int64_t> lengths, std::span<const int64_t> order,
                                            const PackLimits& limits) {
  if (limits.tokens <= 0 || limits.rows < 0) {
    throw Error(ErrorKind::usage, "micro-batches of " + std::to_string(limits.tokens) + " tokens and " +
                                      std::to_string(limits.rows) + " rows; tokens must be positive, rows 0 or more");
  }
  std::vector<std::vector<int64_t>> batches;
  int64_t tokens = 0;
  for (const int64_t row : order) {
    if (row < 0 || row >= static_cast<int64_t>(lengths.size())) {
      throw Error(ErrorKind::bug, "row " + std::to_string(row) + " of " + std::to_string(lengths.size()));
    }
    const int64_t length = lengths[static_cast<size_t>(row)];
    if (length > limits.tokens) {
      throw Error(ErrorKind::usage,
                  "row " + std::to_string(row) + " has " + std::to_string(length) + " tokens, a micro-batch holds " +
                      std::to_string(limits.tokens),
                  "allow more tokens in a micro-batch, or cut rows to a shorter maximum length");
    }
    const bool full = batches.empty() || tokens > limits.tokens - length ||
                      (limits.rows > 0 && static_cast<int64_t>(batches.back().size()) == limits.rows);
    if (full) {
      batches.emplace_back();
      tokens = 0;
    }
    batches.back().push_back(row);
    tokens += length;
  }
  return batches;
}

}  // namespace pacer::data
