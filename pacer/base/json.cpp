#include "pacer/base/json.h"

#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer {
namespace {

constexpr int kMaxDepth = 128;

// The library's own hook for this walks over all elements of a list once more for every object in it, which takes a
// minute for a megabyte of "{},{},...".
bool nested_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

template <typename Value>
Value parse(std::string_view text, const std::string& place, ErrorKind kind) {
  if (nested_too_deep(text)) {
    throw Error(kind, place + ": JSON nested deeper than " + std::to_string(kMaxDepth),
                "this is not a file that Pacer or the usual tools write");
  }
  try {
    return Value::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const size_t start = text.substr(0, at).rfind('\n');
    const size_t column = start == std::string_view::npos ? at + 1 : at - start;
    throw Error(kind, place + ":" + std::to_string(line) + ":" + std::to_string(column) + ": not valid JSON",
                "check the file at that place; was it cut off while it was written?");
  } catch (const nlohmann::json::out_of_range&) {
    throw Error(kind, place + ": JSON with a number beyond the range of a double");
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
