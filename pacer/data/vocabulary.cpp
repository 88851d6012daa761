#include "pacer/data/vocabulary.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "pacer/base/error.h"

namespace pacer::data {

DraftVocabulary select_vocabulary(const std::vector<TokenRow>& rows, int64_t size, int64_t vocab_size) {
  if (size <= 0 || size > vocab_size) {
    throw Error(ErrorKind::usage, "draft vocabulary of " + std::to_string(size) + " tokens; 1 to " +
                                      std::to_string(vocab_size) + " are possible with this target");
  }
  std::vector<int64_t> count(static_cast<size_t>(vocab_size), 0), seen;
  int64_t total = 0;
  for (const TokenRow& row : rows) {
    std::set<int64_t> fresh;
    for (size_t i = 0; i < row.ids.size(); ++i) {
      if (row.supervised[i] == 0) continue;
      const int64_t id = row.ids[i];
      if (id < 0 || id >= vocab_size) {
        throw Error(ErrorKind::data, "row " + row.id + ": token " + std::to_string(id) + " outside the vocabulary");
      }
      if (count[static_cast<size_t>(id)]++ == 0) fresh.insert(id);
      ++total;
    }
    seen.insert(seen.end(), fresh.begin(), fresh.end());
  }
  // Fillers are taken from the first `size` ids, in order, until enough tokens are there.
  for (int64_t id = 0; id < size && static_cast<int64_t>(seen.size()) < size; ++id) {
    if (count[static_cast<size_t>(id)] == 0) seen.push_back(id);
  }
  std::stable_sort(seen.begin(), seen.end(),
                   [&](int64_t a, int64_t b) { return count[static_cast<size_t>(a)] > count[static_cast<size_t>(b)]; });

  DraftVocabulary result;
  result.kept_ids.assign(seen.begin(), seen.begin() + size);
  std::sort(result.kept_ids.begin(), result.kept_ids.end());
  int64_t kept = 0;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t id = result.kept_ids[static_cast<size_t>(i)];
    result.d2t_offsets.push_back(id - i);
    kept += count[static_cast<size_t>(id)];
  }
  result.coverage = total > 0 ? static_cast<double>(kept) / static_cast<double>(total) : 0.0;
  return result;
}

int64_t vocabulary_size_for(const std::vector<TokenRow>& rows, int64_t most) {
  std::unordered_set<int64_t> seen;
  for (const TokenRow& row : rows) {
    for (size_t i = 0; i < row.ids.size(); ++i) {
      if (row.supervised[i] != 0) seen.insert(row.ids[i]);
    }
  }
  constexpr int64_t kMultiple = 512;
  const auto wanted = 2 * static_cast<int64_t>(seen.size());
  return std::min(most, std::max<int64_t>(1, (wanted + kMultiple - 1) / kMultiple) * kMultiple);
}

}  // namespace pacer::data
