// Numbers as a person reads them.
#pragma once

#include <cstdint>
#include <string>

namespace pacer {

std::string format_fixed(double value, int digits);  // "2.79"; "nan" and "inf" as such
std::string format_count(int64_t value);             // "1,234,567"
std::string format_bytes(uint64_t bytes);            // "512 B", "98.4 MB", "1.53 GB": powers of 1000, three digits
std::string format_duration(double seconds);         // "0.25 s", "42 s", "3 min 05 s", "2 h 07 min"
std::string format_percent(double fraction);         // 0.4567 -> "46 %"; 0.034 -> "3.4 %"

}  // namespace pacer
