#include "pacer/base/json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer {
namespace {

constexpr size_t kMaxDepth = 128;
// An ordered object looks through all of its members for each new one.
constexpr size_t kMaxOrderedMembers = 4096;

enum class Excess { none, depth, members };

// What a parser must not be given. The library's own hook for this walks over all elements of a list once more for
// every object in it, which takes a minute for a megabyte of "{},{},...".
Excess excess_of(std::string_view text, size_t max_members) {
  std::array<size_t, kMaxDepth + 1> members{};  // of the open list or object at each depth
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == ':') {
      if (++members[depth] > max_members) return Excess::members;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return Excess::depth;
      members[depth] = 0;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return Excess::none;
}

template <typename Value>
Value parse(std::string_view text, const std::string& place, ErrorKind kind) {
  constexpr bool kOrdered = std::is_same_v<Value, OrderedJson>;
  switch (excess_of(text, kOrdered ? kMaxOrderedMembers : std::numeric_limits<size_t>::max())) {
    case Excess::depth:
      throw Error(kind, place + ": JSON nested deeper than " + std::to_string(kMaxDepth),
                  "this is not a file that Pacer or the usual tools write");
    case Excess::members:
      throw Error(kind, place + ": a JSON object with more than " + std::to_string(kMaxOrderedMembers) + " members",
                  "use a list where there are so many");
    case Excess::none:
      break;
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
