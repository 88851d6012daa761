#include "pacer/workflow/report/axis.h"

#include <algorithm>
#include <cmath>

#include "pacer/base/numbers.h"

namespace pacer::workflow {
namespace {

double nice_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  return power * (digit <= 1.001 ? 1 : digit <= 2.001 ? 2 : digit <= 5.001 ? 5 : 10);
}

}  // namespace

Axis nice_axis(double low, double high, int wanted) {
  if (!(high > low)) {
    const double room = low == 0 ? 1 : std::fabs(low) * 0.1;
    low -= room, high += room;
  }
  const double step = nice_step((high - low) / std::max(wanted, 1));
  // A hundredth of a step of tolerance keeps 0.3 / 0.1 from becoming three and a bit.
  Axis axis;
  const double first = std::floor(low / step + 0.01), last = std::ceil(high / step - 0.01);
  axis.low = first * step;
  axis.high = last * step;
  const auto intervals = static_cast<int>(std::lround(last - first));
  for (int i = 0; i <= intervals; ++i) axis.ticks.push_back((first + i) * step);
  return axis;
}

std::vector<std::string> tick_labels(const Axis& axis) {
  double largest = 0, step = axis.high - axis.low;
  for (const double tick : axis.ticks) largest = std::max(largest, std::fabs(tick));
  if (axis.ticks.size() > 1) step = axis.ticks[1] - axis.ticks[0];
  const bool tiny = largest < 1e-3 && largest > 0;
  const bool thousands = largest >= 10000;
  const double unit = thousands ? 1000 : 1;
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step / unit) - 1e-9)), 0, 6);

  std::vector<std::string> labels;
  for (const double tick : axis.ticks) {
    if (tiny && tick != 0) {
      const int exponent = static_cast<int>(std::floor(std::log10(std::fabs(tick)) + 1e-9));
      labels.push_back(format_fixed(tick / std::pow(10.0, exponent), 0) + "e" + std::to_string(exponent));
    } else {
      labels.push_back(format_fixed(tick / unit, tiny ? 0 : digits) + (thousands && tick != 0 ? "k" : ""));
    }
  }
  return labels;
}

}  // namespace pacer::workflow
