// Scalars of a recipe as numbers, by rules that a person would expect and no others.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pacer::train {

// 12, -3, 0.5, .5, 3e-4, 1_000, 2.5E+3. Underscores between digits only; no hexadecimal, no octal, no inf or nan.
// Empty when the text is no such number or does not fit.
std::optional<double> parse_number(std::string_view text);

// The same, when the value is whole: 1000, 1_000, 1e3. Exact up to the limits of the type.
std::optional<int64_t> parse_whole(std::string_view text);

}  // namespace pacer::train
