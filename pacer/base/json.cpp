#include "pacer/base/json.h"

#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer {
namespace {

constexpr int kMaxDepth = 128;

template <typename Value>
Value parse(std::string_view text, const std::string& place, ErrorKind kind) {
  try {
    return Value::parse(text, [&](int depth, typename Value::parse_event_t, Value&) {
      if (depth > kMaxDepth) {
        throw Error(kind, place + ": JSON nested deeper than " + std::to_string(kMaxDepth),
                    "this is not a file that Pacer or the usual tools write");
      }
      return true;
    });
  } catch (const nlohmann::json::parse_error& error) {
    const size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const size_t start = text.substr(0, at).rfind('\n');
    const size_t column = start == std::string_view::npos ? at + 1 : at - start;
    throw Error(kind, place + ":" + std::to_string(line) + ":" + std::to_string(column) + ": not valid JSON",
                "check the file at that place; was it cut off while it was written?");
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& place, ErrorKind kind) {
  return parse<Json>(text, place, kind);
}

OrderedJson parse_ordered_json(std::string_view text, const std::string& place, ErrorKind kind) {
  return parse<OrderedJson>(text, place, kind);
}

Json read_json(const std::filesystem::path& path, uint64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

}  // namespace pacer
