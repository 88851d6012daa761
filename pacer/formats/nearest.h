// "Did you mean": the known names closest to one that does not exist.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pacer::formats {

// At most `count` of `known`, by edit distance (Levenshtein) and then in their given order. Only the first 200 bytes
// of a name count, which bounds the work for names that come from a file.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known, size_t count = 3);

// "'a', 'b', 'c'"
std::string quoted_list(const std::vector<std::string>& names);

}  // namespace pacer::formats
