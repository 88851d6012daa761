// JSON from files that strangers made: depth and size are bounded, errors name the place.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "pacer/base/error.h"

namespace pacer {

using Json = nlohmann::json;                 // objects sorted by key: lookups in large objects stay fast
using OrderedJson = nlohmann::ordered_json;  // objects in file order: messages and template values

// place: what an error names, such as a path or "path:line". Nesting deeper than 128 is refused.
// Throws Error{kind} with line and column.
Json parse_json(std::string_view text, const std::string& place, ErrorKind kind = ErrorKind::format);
OrderedJson parse_ordered_json(std::string_view text, const std::string& place, ErrorKind kind = ErrorKind::format);

// Files above max_bytes are refused before they are read.
Json read_json(const std::filesystem::path& path, uint64_t max_bytes = uint64_t{256} << 20);

}  // namespace pacer
