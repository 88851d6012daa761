// Memory for packed weights that lie next to each other on large pages.
#pragma once

#include <cstddef>
#include <memory>

namespace pacer::nn {

// Hands out zeroed memory, aligned to 64 bytes, from a few large blocks. Streaming 200 MB through 4 KB pages costs
// 50,000 translations per token and a third of the bandwidth; on 2 MB pages it costs a hundred. The kernel is asked for
// such pages; where it has none the memory works all the same.
//
// A piece keeps its block alive, so the arena may go first. Not thread-safe. Throws Error{resources} without memory.
class PanelArena {
 public:
  std::shared_ptr<std::byte> take(size_t bytes);

 private:
  std::shared_ptr<std::byte> block_;
  size_t used_ = 0, size_ = 0;
};

}  // namespace pacer::nn
