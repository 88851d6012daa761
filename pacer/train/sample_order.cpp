#include "pacer/train/sample_order.h"

#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/data/rows.h"

namespace pacer::train {

SampleOrder::SampleOrder(uint64_t seed, int64_t rows, int64_t sequences, int64_t accumulation, int64_t end)
    : seed_(seed), rows_(rows), sequences_(sequences), accumulation_(accumulation), end_(end) {
  if (rows < 1 || sequences < 1 || accumulation < 1) throw Error(ErrorKind::bug, "SampleOrder: nothing to order");
}

int64_t SampleOrder::row_at(int64_t position) const {
  const int64_t epoch = position / rows_;
  if (epoch != cached_epoch_) {
    cached_order_ = data::epoch_order(seed_, static_cast<uint64_t>(epoch), rows_);
    cached_epoch_ = epoch;
  }
  return cached_order_[static_cast<size_t>(position % rows_)];
}

Window SampleOrder::window(int64_t step) const {
  Window window;
  window.begin = std::min((step - 1) * rows_per_step(), end_);
  window.end = std::min(step * rows_per_step(), end_);
  for (int64_t position = window.begin; position < window.end; ++position) {
    if ((position - window.begin) % sequences_ == 0) window.micro_batches.emplace_back();
    window.micro_batches.back().push_back(row_at(position));
  }
  return window;
}

}  // namespace pacer::train
