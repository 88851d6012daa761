#include "pacer/nn/row_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "pacer/nn/row_operand.h"

namespace pacer::nn {
namespace {

// What one thread needs between calls; grown, never shrunk, so decoding does not allocate.
template <typename T>
struct Scratch {
  std::vector<T> q, probability;
  std::vector<float> scores, sums;
  RowScratch<T> rows;
};

template <typename U>
U* room(std::vector<U>& vector, int64_t count) {
  if (vector.size() < static_cast<size_t>(count)) vector.resize(static_cast<size_t>(count));
  return vector.data();
}

}  // namespace

template <typename T>
void row_attention(const T* q, int64_t rows, int64_t heads, const KeyValuePanels& cache, int64_t head, int64_t first,
                   int64_t reach, T* out, const RowKernels<T>& kernels) {
  static thread_local Scratch<T> scratch;
  const int64_t dim = cache.head_dim(), lanes = cache.lanes(), pair = cache.pair(), width = cache.padded_dim();
  const int64_t group = heads / cache.kv_heads(), queries = rows * group;
  const int64_t length = first + rows, begin = std::max<int64_t>(0, first - reach + 1) / lanes * lanes;
  const int64_t span = (length - begin + lanes - 1) / lanes * lanes;  // whole panels of keys
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));

  // The query heads that share these keys, one after the other.
  T* x = room(scratch.q, queries * dim);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(q + (row * heads + head * group) * dim, group * dim, x + row * group * dim);
  }
  float* scores = room(scratch.scores, queries * span);
  const T* keys = cache.key_panels<T>(head) + begin * dim;
  {
    const RowOperand<T> all(kernels, x, dim, queries, dim, scratch.rows);
    for (int64_t at = 0; at < span; at += lanes) all.times(keys + at * dim, dim / pair, lanes, scores + at, span);
  }
  T* probability = room(scratch.probability, queries * span);
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t position = first + i / group, from = std::max<int64_t>(0, position - reach + 1);
    kernels.softmax(scores + i * span, from - begin, position + 1 - begin, span, scale, scores + i * span,
                    probability + i * span);
  }
  float* sums = room(scratch.sums, queries * width);
  const int64_t steps = (length - begin + pair - 1) / pair;
  const RowOperand<T> all(kernels, probability, span, queries, steps * pair, scratch.rows);
  for (int64_t feature = 0; feature < width; feature += lanes) {
    const int64_t panel = std::min(lanes, width - feature);
    const T* values = cache.value_panels<T>(head) + feature * cache.capacity() + begin * panel;
    all.times(values, steps, panel, sums + feature, width);
  }
  for (int64_t i = 0; i < queries; ++i) {
    T* to = out + ((i / group) * heads + head * group + i % group) * dim;
    kernels.finish(sums + i * width, nullptr, dim, to);
  }
}

template void row_attention<float>(const float*, int64_t, int64_t, const KeyValuePanels&, int64_t, int64_t, int64_t,
                                   float*, const RowKernels<float>&);
template void row_attention<uint16_t>(const uint16_t*, int64_t, int64_t, const KeyValuePanels&, int64_t, int64_t,
                                      int64_t, uint16_t*, const RowKernels<uint16_t>&);

}  // namespace pacer::nn
