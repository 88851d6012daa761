#include "pacer/data/rows.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "pacer/base/files.h"
#include "pacer/base/random.h"
#include "pacer/data/json_lines.h"

namespace pacer::data {
namespace {

// FNV-1a over the numbers that training uses: a changed row changes it, a changed text or message does not.
class Fingerprint {
 public:
  void add(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash_ = (hash_ ^ ((value >> (8 * byte)) & 0xFF)) * 0x100000001B3ull;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325ull;
};

// Appends the ids under `key`; returns a reason when they are not usable.
std::optional<std::string> take_ids(const OrderedJson& row, const char* key, int64_t vocab_size,
                                    std::vector<int64_t>& ids) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_array()) return std::string("no list ") + key;
  for (const auto& id : *found) {
    if (!id.is_number_integer()) return std::string(key) + " holds something that is not an integer";
    const auto value = id.get<int64_t>();
    if (value < 0 || (vocab_size > 0 && value >= vocab_size)) return "token id outside the vocabulary";
    ids.push_back(value);
  }
  return std::nullopt;
}

bool has_run(const std::vector<uint8_t>& supervised, int64_t length) {
  int64_t run = 0;
  for (const uint8_t one : supervised) {
    run = one ? run + 1 : 0;
    if (run >= length) return true;
  }
  return length == 0;
}

}  // namespace

int64_t RowProblems::dropped() const {
  int64_t count = 0;
  for (const auto& [reason, lines] : lines_by_reason) count += static_cast<int64_t>(lines.size());
  return count;
}

std::string RowProblems::summary() const {
  std::string text;
  for (const auto& [reason, lines] : lines_by_reason) {
    text +=
        "; " + reason + ": " + std::to_string(lines.size()) + " (first in line " + std::to_string(lines.front()) + ")";
  }
  return text;
}

Rows read_rows(const std::filesystem::path& path, const RowOptions& options) {
  Rows result;
  Fingerprint fingerprint;
  std::unordered_set<std::string> seen;
  for_each_json_row(path, [&](int64_t line, const std::optional<OrderedJson>& row) {
    const auto drop = [&](const std::string& reason) { result.problems.lines_by_reason[reason].push_back(line); };
    if (!row) return drop("not JSON");
    if (!row->is_object()) return drop("not an object");
    TokenRow taken;
    const auto id = row->find("id");
    taken.id = id != row->end() && id->is_string() ? id->get<std::string>() : "line-" + std::to_string(line);
    if (auto reason = take_ids(*row, "prompt_ids", options.vocab_size, taken.ids)) return drop(*reason);
    const size_t prompt = taken.ids.size();
    if (auto reason = take_ids(*row, "output_ids", options.vocab_size, taken.ids)) return drop(*reason);
    taken.supervised.assign(taken.ids.size(), 1);
    std::fill_n(taken.supervised.begin(), prompt, uint8_t{0});
    if (static_cast<int64_t>(taken.ids.size()) > options.max_length) {
      taken.ids.resize(static_cast<size_t>(options.max_length));
      taken.supervised.resize(static_cast<size_t>(options.max_length));
    }
    if (!has_run(taken.supervised, options.minimum_supervised)) {
      return drop("fewer than " + std::to_string(options.minimum_supervised) + " answer tokens in a row");
    }
    if (!seen.insert(taken.id).second) return drop("an id that occurred before");
    for (size_t i = 0; i < taken.ids.size(); ++i) {
      fingerprint.add(static_cast<uint64_t>(taken.ids[i]) * 2 + taken.supervised[i]);
    }
    fingerprint.add(~uint64_t{0});  // a row ends
    result.rows.push_back(std::move(taken));
  });
  if (result.rows.empty()) {
    throw Error(ErrorKind::data, path.string() + ": no usable row" + result.problems.summary(),
                "rows are {\"prompt_ids\": [...], \"output_ids\": [...]} as `pacer data generate` writes them");
  }
  result.fingerprint = fingerprint.value();
  return result;
}

std::vector<int64_t> epoch_order(uint64_t seed, uint64_t epoch, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  const RandomStream random(seed, Purpose::data_order, epoch);
  // Fisher-Yates from the end; draw i decides place i, whatever happened before.
  for (int64_t i = count - 1; i > 0; --i) {
    const auto j = static_cast<int64_t>(random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1));
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  return order;
}

}  // namespace pacer::data
