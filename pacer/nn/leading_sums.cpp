#include "pacer/nn/leading_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/Parallel.h>

#include "pacer/nn/bfloat16.h"
#include "pacer/nn/clones.h"

namespace pacer::nn {
namespace {

// More than what f32 sums of up to a few thousand products can be above the exact ones, relative to |W[n]| |u|.
constexpr double kRounding = 1e-3;
// Panels of one task: fewer are not worth waking another thread for.
constexpr int64_t kPanelsPerTask = 16;

template <typename T>
double length_of(const T* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(widen(x[i])) * widen(x[i]);
  return std::sqrt(sum);
}

// Whether one of `count` bounds is not at or below `best`; true for what is not a number.
PACER_CLONES bool any_above(const float* logits, const float* norms, int64_t count, float length, float best) {
  int32_t above = 0;
  for (int64_t i = 0; i < count; ++i) above |= !(logits[i] + norms[i] * length <= best);
  return above != 0;
}

// A NaN is larger than nothing; `begin` where there is nothing else.
PACER_CLONES float largest(const float* values, int64_t count) {
  constexpr int64_t kWidth = 64;
  float lanes[kWidth];
  std::fill_n(lanes, kWidth, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    for (int64_t lane = 0; lane < kWidth; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  for (; i < count; ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(lanes, lanes + kWidth);
}

int64_t first_maximum(const float* values, int64_t begin, int64_t end) {
  const float* found = std::find(values + begin, values + end, largest(values + begin, end - begin));
  return found == values + end ? begin : found - values;
}

}  // namespace

template <typename T>
LeadingSums<T>::LeadingSums(const at::Tensor& weight, PanelArena& arena, const RowKernels<T>& kernels)
    : table_({weight}, arena, kernels), read_(static_cast<size_t>(table_.panels()), 0) {
  const at::Tensor dense = weight.contiguous();
  const T* rows = static_cast<const T*>(dense.const_data_ptr());
  norms_.resize(static_cast<size_t>(table_.outputs()));
  for (int64_t n = 0; n < table_.outputs(); ++n) {
    norms_[static_cast<size_t>(n)] =
        static_cast<float>(length_of(rows + n * table_.inputs(), table_.inputs()) * (1 + kRounding));
  }
}

template <typename T>
void LeadingSums<T>::add(const T* u, float* logits) const {
  sums_.resize(static_cast<size_t>(table_.stride()));
  table_.sums(u, 1, sums_.data());
  for (int64_t n = 0; n < outputs(); ++n) logits[n] += sums_[static_cast<size_t>(n)];
}

template <typename T>
void LeadingSums<T>::add_panel(const T* u, int64_t panel, float* logits) const {
  const int64_t lanes = table_.lanes(), first = panel * lanes, count = std::min(lanes, outputs() - first);
  float* own = sums_.data() + first;
  table_.panel_sums(u, panel, own);
  for (int64_t n = 0; n < count; ++n) logits[first + n] += own[n];
}

template <typename T>
std::vector<int64_t> LeadingSums<T>::take_open(const float* logits, float length, float best) const {
  std::vector<int64_t> open;
  const int64_t lanes = table_.lanes();
  for (int64_t panel = 0; panel < panels(); ++panel) {
    const int64_t first = panel * lanes, count = std::min(lanes, outputs() - first);
    char& read = read_[static_cast<size_t>(panel)];
    if (read || !any_above(logits + first, norms_.data() + first, count, length, best)) continue;
    read = 1;
    open.push_back(panel);
  }
  return open;
}

template <typename T>
int64_t LeadingSums<T>::add_leading(const T* u, float* logits) const {
  sums_.resize(static_cast<size_t>(panels() * table_.lanes()));
  std::fill(read_.begin(), read_.end(), 0);
  const float length = static_cast<float>(length_of(u, table_.inputs()) * (1 + kRounding));
  // The likeliest panel before the addition sets the mark for all others.
  const int64_t lanes = table_.lanes(), leader = first_maximum(logits, 0, outputs()) / lanes;
  add_panel(u, leader, logits);
  read_[static_cast<size_t>(leader)] = 1;
  const int64_t begin = leader * lanes, end = std::min(begin + lanes, outputs());
  const std::vector<int64_t> open = take_open(logits, length, logits[first_maximum(logits, begin, end)]);
  at::parallel_for(0, static_cast<int64_t>(open.size()), kPanelsPerTask, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) add_panel(u, open[static_cast<size_t>(i)], logits);
  });
  panels_read_ = 1 + static_cast<int64_t>(open.size());
  return first_maximum(logits, 0, outputs());
}

template <typename T>
void LeadingSums<T>::add_rest(const T* u, float* logits) const {
  for (int64_t panel = 0; panel < panels(); ++panel) {
    if (!std::exchange(read_[static_cast<size_t>(panel)], 1)) add_panel(u, panel, logits);
  }
}

template class LeadingSums<float>;
template class LeadingSums<uint16_t>;

}  // namespace pacer::nn
