// Memory for results that are made anew for every token.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// Tensors [rows, width] f32 whose memory comes back when the last reference is gone and serves the next one. A megabyte
// of logits from the system would be mapped, zeroed and unmapped for every token: a tenth of the time of a round.
//
// Usable from several threads; tensors may outlive it.
class RowMemory : public std::enable_shared_from_this<RowMemory> {
 public:
  at::Tensor take(int64_t rows, int64_t width);  // not initialised

 private:
  static constexpr size_t kMostSpare = 4;  // blocks that are kept
  struct Block {
    std::unique_ptr<float[]> values;
    int64_t size = 0;
  };
  void give_back(Block block);

  std::mutex mutex_;
  std::vector<Block> spare_;
};

}  // namespace pacer::nn
