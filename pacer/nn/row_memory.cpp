#include "pacer/nn/row_memory.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/from_blob.h>

namespace pacer::nn {

at::Tensor RowMemory::take(int64_t rows, int64_t width) {
  const int64_t size = std::max<int64_t>(1, rows * width);
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(spare_.begin(), spare_.end(), [&](const Block& one) { return one.size >= size; });
    if (fits != spare_.end()) {
      block = std::move(*fits);
      spare_.erase(fits);
    }
  }
  if (block.values == nullptr) block = {std::make_unique_for_overwrite<float[]>(static_cast<size_t>(size)), size};
  const auto held = std::make_shared<Block>(std::move(block));
  return at::from_blob(
      held->values.get(), {rows, width},
      [held, owner = shared_from_this()](void*) { owner->give_back(std::move(*held)); },
      at::TensorOptions().dtype(at::kFloat));
}

void RowMemory::give_back(Block block) {
  const std::lock_guard lock(mutex_);
  if (spare_.size() >= kMostSpare) {
    // The smallest goes: a larger one serves every call that it served.
    const auto least =
        std::min_element(spare_.begin(), spare_.end(), [](const Block& a, const Block& b) { return a.size < b.size; });
    if (least->size < block.size) *least = std::move(block);
    return;
  }
  spare_.push_back(std::move(block));
}

}  // namespace pacer::nn
