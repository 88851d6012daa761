#include "pacer/decode/row_costs.h"

#include <algorithm>
#include <iterator>

#include "pacer/base/error.h"

namespace pacer::decode {
namespace {

constexpr size_t kRemembered = 9;
constexpr int64_t kOld = 256;          // measurements
constexpr double kAssumedRise = 0.05;  // per row, of the only figure that is known

}  // namespace

void RowCosts::add(int64_t rows, double cost) {
  Recent& recent = measured_[rows];
  if (++made_ - recent.last > kOld) recent.costs.clear(), recent.next = 0;
  recent.last = made_;
  if (recent.costs.size() < kRemembered) {
    recent.costs.push_back(cost);
  } else {
    recent.costs[recent.next] = cost;
    recent.next = (recent.next + 1) % kRemembered;
  }
  std::vector<double> sorted = recent.costs;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  recent.median = *middle;
}

int64_t RowCosts::measurements(int64_t rows) const {
  const auto found = measured_.find(rows);
  return found == measured_.end() ? 0 : static_cast<int64_t>(found->second.costs.size());
}

double RowCosts::cost(int64_t rows) const {
  if (measured_.empty()) throw Error(ErrorKind::bug, "the cost of a pass is asked for before any was measured");
  const auto above = measured_.lower_bound(rows);
  if (above != measured_.end() && (above->first == rows || above == measured_.begin())) return above->second.median;
  const auto last = above == measured_.end() ? std::prev(above) : above;
  if (last == measured_.begin()) {
    return last->second.median * (1.0 + kAssumedRise * static_cast<double>(rows - last->first));
  }
  const auto first = std::prev(last);
  double slope = (last->second.median - first->second.median) / static_cast<double>(last->first - first->first);
  if (above == measured_.end()) slope = std::max(slope, 0.0);
  const auto& [from, figure] = above == measured_.end() ? *last : *first;
  return figure.median + slope * static_cast<double>(rows - from);
}

}  // namespace pacer::decode
