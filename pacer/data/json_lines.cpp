#include "pacer/data/json_lines.h"

#include <string_view>

#include "pacer/base/files.h"

namespace pacer::data {

void for_each_json_row(const std::filesystem::path& path,
                       const std::function<void(int64_t, const std::optional<OrderedJson>&)>& row) {
  const std::string content = read_file(path);
  std::string_view rest = content;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // a byte order mark is no part of the first row
  const size_t first = rest.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && rest[first] == '[') {
    const OrderedJson list = parse_ordered_json(rest, path.string(), ErrorKind::data);
    for (size_t i = 0; i < list.size(); ++i) row(static_cast<int64_t>(i) + 1, list[i]);
    return;
  }
  for (int64_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::optional<OrderedJson> value;
    try {
      value = parse_ordered_json(text, path.string(), ErrorKind::data);
    } catch (const Error&) {
      value.reset();  // told to the callback, which counts it with its line
    }
    row(line, value);
  }
}

}  // namespace pacer::data
