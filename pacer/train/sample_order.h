// Which rows an optimizer step trains on: a function of (seed, step) alone, so a resumed run needs no stored position.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace pacer::train {

// The rows of one optimizer step, divided into micro-batches.
struct Window {
  std::vector<std::vector<int64_t>> micro_batches;  // row numbers
  int64_t begin = 0, end = 0;                       // positions in the endless sequence of rows
};

// Rows stand in one endless sequence: the permutation of epoch 0, then that of epoch 1, and so on (data/rows.h,
// epoch_order). Step n takes positions [(n - 1) W, n W) with W = sequences * accumulation, across the ends of epochs,
// so no row is left out. The last step may be shorter: `end` is where the run stops.
class SampleOrder {
 public:
  SampleOrder(uint64_t seed, int64_t rows, int64_t sequences, int64_t accumulation,
              int64_t end = std::numeric_limits<int64_t>::max());

  Window window(int64_t step) const;  // step = 1, 2, ...; empty micro_batches when the sequence is over
  int64_t rows_per_step() const { return sequences_ * accumulation_; }
  // Epochs that are done when `position` rows are.
  double epochs(int64_t position) const { return static_cast<double>(position) / static_cast<double>(rows_); }
  // The newest epoch that ends within the rows `before` + 1 .. `after`, of those that are multiples of `every`; 0:
  // none.
  int64_t epoch_ended(int64_t before, int64_t after, int64_t every) const {
    if (every < 1) return 0;
    const int64_t rows = every * rows_;
    return after / rows > before / rows ? after / rows * every : 0;
  }

 private:
  int64_t row_at(int64_t position) const;

  uint64_t seed_;
  int64_t rows_, sequences_, accumulation_, end_;
  mutable int64_t cached_epoch_ = -1;  // one permutation is kept: steps come in order
  mutable std::vector<int64_t> cached_order_;
};

}  // namespace pacer::train
