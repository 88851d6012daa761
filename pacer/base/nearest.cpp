#include "pacer/base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pacer {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known, size_t count) {
  constexpr size_t kCompared = 200;
  constexpr size_t kMaxNames = 20000;
  std::vector<std::pair<size_t, size_t>> ranked;
  for (size_t i = 0; i < std::min(known.size(), kMaxNames); ++i) {
    ranked.emplace_back(edit_distance(name.substr(0, kCompared), std::string_view(known[i]).substr(0, kCompared)), i);
  }
  const size_t kept = std::min(count, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(kept), ranked.end());
  std::vector<std::string> result;
  for (size_t i = 0; i < kept; ++i) result.push_back(known[ranked[i].second]);
  return result;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::vector<std::string> best = nearest(name, known, 1);
  if (best.empty()) return {};
  const size_t allowed = std::max<size_t>(1, (std::max(name.size(), best[0].size()) + 1) / 3);
  return edit_distance(name, best[0]) <= allowed ? best[0] : std::string();
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

}  // namespace pacer
