// Which bytes a strided view touches, and whether two views touch the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/util/ArrayRef.h>

namespace pacer::simnpu {

// Runs of `run` consecutive bytes, repeated along outer dimensions. A contiguous tensor is one run; a slice of columns
// is one run per row. Nothing is enumerated.
class Region {
 public:
  // address of the first element; sizes and strides in elements. A view without elements touches nothing.
  Region(uintptr_t address, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t element_bytes);
  static Region bytes(uintptr_t address, size_t count);  // one run

  bool empty() const { return begin_ == end_; }
  uintptr_t begin() const { return begin_; }
  uintptr_t end() const { return end_; }  // one behind the last byte

  // Exact, for views that a program makes (rows, columns, blocks, transposed or not). Costs the number of runs of the
  // smaller view inside the other's bounds; above kMostRuns the bounds alone decide, which may only report too much.
  bool overlaps(const Region& other) const;
  // True only when every byte of `other` is one of these; may be false for views that interleave.
  bool covers(const Region& other) const;

  static constexpr size_t kMostRuns = size_t{1} << 20;

 private:
  struct Dimension {
    size_t count;
    size_t stride;  // bytes
    size_t extent;  // bytes from the first to the last byte of everything inside one step
  };
  Region() = default;
  size_t runs() const;
  bool touches(uintptr_t from, uintptr_t to, size_t dimension, uintptr_t base) const;
  template <class Visit>
  bool any_run(const Visit& visit, size_t dimension, uintptr_t base) const;

  uintptr_t begin_ = 0, end_ = 0;
  size_t run_ = 0;
  std::vector<Dimension> outer_;  // the largest stride first
};

}  // namespace pacer::simnpu
