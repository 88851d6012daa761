#include "pacer/device/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "pacer/base/error.h"

namespace pacer::device {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::vector<std::string> entries_of(const std::string& text) {
  std::vector<std::string> entries;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string entry = text.substr(begin, end - begin);
    const size_t first = entry.find_first_not_of(' ');
    entries.push_back(first == std::string::npos ? std::string() : entry.substr(first));
    begin = end + 1;
  }
  return entries;
}

// The number that an entry begins with; -1: it begins with none.
int leading_number(const std::string& entry) {
  size_t end = !entry.empty() && (entry[0] == '-' || entry[0] == '+') ? 1 : 0;
  const size_t digits = end;
  while (end < entry.size() && is_digit(entry[end])) ++end;
  if (end == digits || entry[0] == '-') return -1;
  const std::string number = entry.substr(0, end);
  return number.size() > 9 ? std::numeric_limits<int>::max() : std::stoi(number);
}

// The one device whose UUID begins with `entry`; -1: none or several.
int device_by_uuid(const std::string& entry, const std::vector<std::string>& uuids) {
  int found = -1;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].starts_with(entry)) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

std::vector<int> first_valid(const std::string& value, int count, const std::vector<std::string>& uuids) {
  std::vector<int> ids;
  for (const std::string& entry : entries_of(value)) {
    const bool name = !entry.empty() && std::isalpha(static_cast<unsigned char>(entry[0])) != 0;
    const int id = name ? device_by_uuid(entry, uuids) : leading_number(entry);
    if (id < 0 || id >= count) break;
    if (std::ranges::find(ids, id) != ids.end()) return {};
    ids.push_back(id);
  }
  return ids;
}

std::vector<int> ascending(const std::string& value, int count) {
  std::string list = value;
  const auto bad = std::ranges::find_if(list, [](char c) { return !is_digit(c) && c != ','; });
  list.erase(bad, list.end());
  std::vector<int> ids;
  for (const std::string& entry : entries_of(list)) {
    if (entry.empty()) break;
    const int id = leading_number(entry);
    if (id >= count) break;
    if (!ids.empty() && id <= ids.back()) return {};
    ids.push_back(id);
  }
  return ids;
}

std::vector<int> first_numbers(int count) {
  std::vector<int> ids(static_cast<size_t>(std::max(count, 0)));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::optional<int> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string value = text;
  if (value.empty() || value.size() > 9 || !std::ranges::all_of(value, is_digit)) {
    throw Error(ErrorKind::usage, std::string(variable) + " is \"" + value + "\", allowed is a number from 0 on",
                "launchers set this variable; unset it for a run of one process");
  }
  return std::stoi(value);
}

}  // namespace

std::vector<int> visible_devices(VisibilityRule rule, const std::optional<std::string>& value, int count,
                                 const std::vector<std::string>& uuids) {
  if (!value || rule == VisibilityRule::none) return first_numbers(count);
  return rule == VisibilityRule::ascending ? ascending(*value, count) : first_valid(*value, count, uuids);
}

std::vector<int> torch_indices(const Visibility& visibility, const std::optional<std::string>& value, int runtime_count,
                               const std::vector<std::string>& uuids) {
  if (!visibility.runtime_applies_it) return visible_devices(visibility.rule, value, runtime_count, uuids);
  // Names mean nothing without the devices behind them; the runtime has resolved them.
  const bool names = value && std::ranges::any_of(*value, [](char c) { return std::isalpha(c) != 0; });
  if (names && visibility.rule == VisibilityRule::first_valid) return first_numbers(runtime_count);
  if (!value || visibility.rule == VisibilityRule::none) return first_numbers(runtime_count);
  const auto listed = visible_devices(visibility.rule, value, std::numeric_limits<int>::max() - 1, uuids);
  return first_numbers(std::min(runtime_count, static_cast<int>(listed.size())));
}

int listed_devices(const std::string& value) {
  int count = 0;
  for (const std::string& entry : entries_of(value)) {
    if (entry.starts_with("-")) break;
    if (!entry.empty()) ++count;
  }
  return count;
}

LaunchRanks LaunchRanks::from_environment() {
  return {
      .local_rank = number_of("LOCAL_RANK"), .local_size = number_of("LOCAL_WORLD_SIZE"), .rank = number_of("RANK")};
}

int local_device(const LaunchRanks& ranks, int count, const std::string& product, const Visibility& visibility) {
  const std::string have = std::to_string(count) + " visible " + product + (count == 1 ? " device" : " devices");
  std::string set;
  if (!visibility.count_variable.empty()) {
    set = " or set " + visibility.count_variable + " to more";
  } else if (!visibility.variable.empty()) {
    set = " or let " + visibility.variable + " list more of them";
  }
  if (count < 1) throw Error(ErrorKind::bug, "local_device: no devices");
  if (ranks.local_size && *ranks.local_size > count) {
    throw Error(ErrorKind::device,
                std::to_string(*ranks.local_size) + " ranks on this machine (LOCAL_WORLD_SIZE), and " + have,
                "start at most " + std::to_string(count) + " ranks here" + set);
  }
  if (ranks.local_rank) {
    if (*ranks.local_rank >= count) {
      throw Error(ErrorKind::device, "LOCAL_RANK is " + std::to_string(*ranks.local_rank) + ", and there is " + have,
                  "start at most " + std::to_string(count) + " ranks here" + set);
    }
    return *ranks.local_rank;
  }
  return ranks.rank ? *ranks.rank % count : 0;
}

}  // namespace pacer::device
