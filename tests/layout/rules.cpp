#include "tests/layout/rules.h"

#include <algorithm>
#include <regex>
#include <sstream>

namespace pacer::layout {
namespace {

struct Include {
  std::string path;
  bool quoted;
};

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back({match[2].str(), match[1].str() == "\""});
  }
  return found;
}

bool is_torch(const std::string& path) {
  return path.starts_with("ATen/") || path.starts_with("c10/") || path.starts_with("torch/");
}

bool is_whole_torch(const std::string& path) {
  return path == "torch/torch.h" || path == "torch/all.h" || path == "torch/extension.h" || path == "ATen/ATen.h" ||
         path == "ATen/Functions.h";
}

// "pacer/nn/linear.h" -> "nn"; "" for anything else.
std::string room_of(const std::filesystem::path& path) {
  auto part = path.begin();
  if (part == path.end() || part->string() != "pacer") return {};
  ++part;
  return part == path.end() ? std::string() : part->string();
}

}  // namespace

std::vector<Room> parse_rooms(const std::string& text) {
  std::vector<Room> rooms;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, torch;
    if (line.starts_with("#") || !(words >> name >> torch)) continue;
    rooms.push_back({name, torch == "yes"});
  }
  return rooms;
}

std::vector<std::string> include_violations(const std::filesystem::path& file, const std::string& text,
                                            const std::vector<Room>& order) {
  const auto place = [&](const std::string& room) {
    return std::find_if(order.begin(), order.end(), [&](const Room& r) { return r.name == room; });
  };
  const auto own = place(room_of(file));
  if (own == order.end()) return {file.string() + ": this room is not in cmake/rooms.txt"};

  std::vector<std::string> found;
  for (const Include& include : includes_of(text)) {
    const auto violation = [&](const std::string& why) {
      found.push_back(file.string() + " includes " + include.path + ": " + why);
    };
    if (is_whole_torch(include.path)) {
      violation("use per-operator headers");
    } else if (is_torch(include.path) && !own->links_torch) {
      violation("'" + own->name + "' is a room without torch");
    } else if (include.quoted && room_of(include.path).empty()) {
      violation("a room includes rooms, by their path from the root");
    } else if (include.quoted) {
      const auto other = place(room_of(include.path));
      if (other == order.end() || other > own) violation("it is not above '" + own->name + "'");
      if (other < own && other->links_torch && !own->links_torch) violation("'" + other->name + "' needs torch");
    }
  }
  return found;
}

std::string whole_torch_include(const std::string& text) {
  for (const Include& include : includes_of(text)) {
    if (is_whole_torch(include.path)) return include.path;
  }
  return {};
}

}  // namespace pacer::layout
