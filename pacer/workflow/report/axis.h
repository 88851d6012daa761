// Axes whose ticks are numbers that a person would choose.
#pragma once

#include <string>
#include <vector>

namespace pacer::workflow {

struct Axis {
  double low = 0, high = 1;
  std::vector<double> ticks;  // multiples of 1, 2 or 5 times a power of ten, inside [low, high]

  // 0 at low, 1 at high.
  double share(double value) const { return (value - low) / (high - low); }
};

// Covers [low, high] widened to whole steps, with about `wanted` ticks. An interval of no width is widened around it.
Axis nice_axis(double low, double high, int wanted);

// The ticks of an axis as text, all with the same number of digits; thousands as "12k".
std::vector<std::string> tick_labels(const Axis& axis);

}  // namespace pacer::workflow
