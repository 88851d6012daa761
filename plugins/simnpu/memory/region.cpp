#include "plugins/simnpu/memory/region.h"

#include <algorithm>

namespace pacer::simnpu {

Region::Region(uintptr_t address, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t element_bytes) {
  struct Axis {
    size_t count, stride;
  };
  std::vector<Axis> axes;
  begin_ = end_ = address;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return;
    // A stride of zero is the same element again.
    if (sizes[d] > 1 && strides[d] > 0) {
      axes.push_back({static_cast<size_t>(sizes[d]), static_cast<size_t>(strides[d]) * element_bytes});
    }
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  run_ = element_bytes;
  size_t extent = run_;
  for (const Axis& axis : axes) {
    if (outer_.empty() && axis.stride <= run_) {
      run_ = extent = axis.stride * (axis.count - 1) + run_;
      continue;
    }
    outer_.push_back({axis.count, axis.stride, extent});
    extent += axis.stride * (axis.count - 1);
  }
  std::reverse(outer_.begin(), outer_.end());
  end_ = begin_ + extent;
}

Region Region::bytes(uintptr_t address, size_t count) {
  Region region;
  region.begin_ = address;
  region.end_ = address + count;
  region.run_ = count;
  return region;
}

size_t Region::runs() const {
  size_t product = 1;
  for (const Dimension& dimension : outer_) product *= dimension.count;
  return product;
}

// Whether a run meets [from, to). Only steps whose extent meets it are followed: where rows do not overlap, one or two.
bool Region::touches(uintptr_t from, uintptr_t to, size_t dimension, uintptr_t base) const {
  if (dimension == outer_.size()) return base < to && from < base + run_;
  const Dimension& d = outer_[dimension];
  if (to <= base) return false;
  const uintptr_t reach = base + d.extent;
  const size_t first = from < reach ? 0 : (from - reach) / d.stride + 1;
  const size_t last = std::min(d.count - 1, (to - 1 - base) / d.stride);
  for (size_t i = first; i <= last; ++i) {
    if (touches(from, to, dimension + 1, base + i * d.stride)) return true;
  }
  return false;
}

template <class Visit>
bool Region::any_run(const Visit& visit, size_t dimension, uintptr_t base) const {
  if (dimension == outer_.size()) return visit(base, base + run_);
  const Dimension& d = outer_[dimension];
  for (size_t i = 0; i < d.count; ++i) {
    if (any_run(visit, dimension + 1, base + i * d.stride)) return true;
  }
  return false;
}

bool Region::overlaps(const Region& other) const {
  if (empty() || other.empty() || end_ <= other.begin_ || other.end_ <= begin_) return false;
  if (outer_.empty() && other.outer_.empty()) return true;
  const bool mine_are_fewer = runs() <= other.runs();
  const Region &few = mine_are_fewer ? *this : other, &many = mine_are_fewer ? other : *this;
  if (few.runs() > kMostRuns) return true;
  return few.any_run([&](uintptr_t from, uintptr_t to) { return many.touches(from, to, 0, many.begin_); }, 0,
                     few.begin_);
}

bool Region::covers(const Region& other) const {
  if (other.empty()) return true;
  if (outer_.empty()) return begin_ <= other.begin_ && other.end_ <= end_;
  const auto same = [](const Dimension& a, const Dimension& b) { return a.count == b.count && a.stride == b.stride; };
  return begin_ == other.begin_ && run_ == other.run_ &&
         std::equal(outer_.begin(), outer_.end(), other.outer_.begin(), other.outer_.end(), same);
}

}  // namespace pacer::simnpu
