// "Did you mean": the known names closest to one that does not exist.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pacer {

// Levenshtein distance in bytes: the least number of insertions, deletions and substitutions.
size_t edit_distance(std::string_view a, std::string_view b);

// At most `count` of `known`, by edit distance and then in their given order. Only the first 200 bytes of a name and
// the first 20,000 names count, which bounds the work for names that come from a file.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known, size_t count = 3);

// The one known name that was probably meant: distance at most a third (rounded) of the longer name, at least 1. Empty
// when none is.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

// "'a', 'b', 'c'"
std::string quoted_list(const std::vector<std::string>& names);

}  // namespace pacer
