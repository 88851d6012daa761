#include "pacer/bench/paired.h"

#include <algorithm>
#include <cmath>

#include "pacer/bench/stopclock.h"

namespace pacer::bench {

MedianInterval median_interval(std::vector<double> values) {
  const double middle = median(values);
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  double term = std::pow(0.5, static_cast<double>(count)), below = 0;  // P(= i), P(< k)
  size_t k = 0;
  for (; k < count && below + term <= 0.025; ++k) {
    below += term;
    term *= static_cast<double>(count - k) / static_cast<double>(k + 1);
  }
  const size_t place = k > 0 ? k - 1 : 0;
  return {middle, values[place], values[count - 1 - place]};
}

}  // namespace pacer::bench
