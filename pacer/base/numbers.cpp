#include "pacer/base/numbers.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace pacer {

std::string format_fixed(double value, int digits) {
  std::array<char, 400> text{};  // 1e308 has 309 digits before the point
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string format_count(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  // 999.5 would be written as "1000".
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return format_fixed(value, digits) + " " + kUnits[unit];
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return format_fixed(seconds, 0) + " s";
  if (seconds < 0.995) return format_fixed(seconds, 2) + " s";
  if (seconds < 9.95) return format_fixed(seconds, 1) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const auto two_digits = [](int64_t value) {
    std::string text = std::to_string(value);
    if (text.size() < 2) text.insert(0, 1, '0');
    return text;
  };
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + two_digits(whole % 60) + " s";
  const int64_t minutes = (whole + 30) / 60;
  return std::to_string(minutes / 60) + " h " + two_digits(minutes % 60) + " min";
}

std::string format_percent(double fraction) {
  const double percent = 100 * fraction;
  return format_fixed(percent, std::fabs(percent) < 9.95 && percent != 0 ? 1 : 0) + " %";
}

}  // namespace pacer
