#include "pacer/nn/panel_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "pacer/base/error.h"
#include "pacer/base/huge_pages.h"

namespace pacer::nn {
namespace {

constexpr size_t kBlock = size_t{64} << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Pages that are never touched cost nothing, so a block may be larger than what is taken from it.
std::shared_ptr<std::byte> map_block(size_t bytes) {
  const size_t mapped = bytes + kHugePageBytes;  // room to begin at a large page
  void* start = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    throw Error(ErrorKind::resources, "no memory for " + std::to_string(bytes >> 20) + " MB of packed weights",
                "use a smaller model or bf16");
  }
  auto* first = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(start), kHugePageBytes));
  advise_huge_pages(first, bytes);
  return {first, [start, mapped](std::byte*) { ::munmap(start, mapped); }};
}

}  // namespace

std::shared_ptr<std::byte> PanelArena::take(size_t bytes) {
  const size_t piece = round_up(std::max<size_t>(bytes, 1), 64);
  if (piece > size_ - used_) {
    size_ = round_up(std::max(piece, kBlock), kHugePageBytes);
    block_ = map_block(size_);
    used_ = 0;
  }
  std::byte* first = block_.get() + used_;
  used_ += piece;
  return {block_, first};
}

}  // namespace pacer::nn
