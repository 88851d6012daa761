// Two ways of doing a work, step by step in turns: what one costs over the other, without what the machine does
// meanwhile.
#pragma once

#include <vector>

namespace pacer::bench {

// Median of values and an interval that holds the true median with a probability of at least 95 %, whatever the
// distribution: the k-th smallest to the k-th largest, k the largest number with P(Binomial(n, 1/2) < k) <= 2.5 %.
// Below six values there is no such interval: low and high are then the smallest and the largest.
struct MedianInterval {
  double median = 0, low = 0, high = 0;
};
MedianInterval median_interval(std::vector<double> values);  // of a list that is not empty

}  // namespace pacer::bench
