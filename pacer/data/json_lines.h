// JSON Lines, or one JSON list, row by row with line numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "pacer/base/json.h"

namespace pacer::data {

// Calls `row` with the 1-based line and the value; nullopt where the line is not JSON. Blank lines are skipped. A file
// whose first character is '[' is one JSON list; its rows carry their index + 1 as line.
// Throws Error{data} for a file that is missing or above 4 GB.
void for_each_json_row(const std::filesystem::path& path,
                       const std::function<void(int64_t line, const std::optional<OrderedJson>& row)>& row);

}  // namespace pacer::data
