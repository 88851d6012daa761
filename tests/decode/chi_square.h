// Does a set of draws follow a law? Pearson's chi-square test.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace pacer::test {

// Probability that a chi-square variable with `freedom` degrees of freedom exceeds x: the
// regularised upper incomplete gamma function Q(freedom / 2, x / 2): series below the mean, Lentz's continued fraction
// above it.
inline double chi_square_tail(double x, int64_t freedom) {
  const double a = 0.5 * static_cast<double>(freedom), y = 0.5 * x;
  if (y <= 0.0) return 1.0;
  const double scale = std::exp(a * std::log(y) - y - std::lgamma(a));
  if (y < a + 1.0) {
    double term = 1.0 / a, sum = term;
    for (int n = 1; n < 10000 && term > 1e-17 * sum; ++n) sum += term *= y / (a + n);
    return 1.0 - scale * sum;
  }
  double b = y + 1.0 - a, c = 1e300, d = 1.0 / b, h = d;
  for (int n = 1; n < 10000; ++n) {
    const double an = -n * (n - a);
    b += 2.0;
    d = 1.0 / (an * d + b);
    c = b + an / c;
    const double change = d * c;
    h *= change;
    if (std::abs(change - 1.0) < 1e-15) break;
  }
  return scale * h;
}

// Pearson's statistic of counts against probabilities; cells that cannot occur must be empty (the tail is then 0).
struct ChiSquare {
  double statistic = 0.0;
  int64_t freedom = 0;
  bool impossible = false;
  void add(const std::vector<int64_t>& counts, const std::vector<double>& law);
  double tail() const { return impossible ? 0.0 : chi_square_tail(statistic, freedom); }
};

inline void ChiSquare::add(const std::vector<int64_t>& counts, const std::vector<double>& law) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  if (total == 0) return;
  // Cells that expect fewer than five are put together, or the statistic is not chi-square distributed.
  double small_expected = 0.0, small_count = 0.0, sum = 0.0;
  int64_t cells = 0;
  const auto cell = [&](double count, double expected) {
    sum += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = law[i] * static_cast<double>(total);
    if (law[i] <= 0.0) {
      impossible = impossible || counts[i] > 0;
    } else if (expected < 5.0) {
      small_expected += expected;
      small_count += static_cast<double>(counts[i]);
    } else {
      cell(static_cast<double>(counts[i]), expected);
    }
  }
  if (small_expected >= 5.0) cell(small_count, small_expected);
  if (cells > 1) statistic += sum, freedom += cells - 1;
}

}  // namespace pacer::test
