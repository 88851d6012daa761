#include "pacer/train/state_store.h"

#include <algorithm>

#include "pacer/base/error.h"

namespace pacer::train {

bool StateStore::put(const std::string& id, std::vector<int64_t> ids, KeptStates kept) {
  const target::TargetOutput& states = kept.states;
  const auto tokens = static_cast<int64_t>(ids.size());
  const auto fits = [&](const at::Tensor& rows, int64_t dimensions) {
    return rows.defined() && rows.dim() == dimensions && (rows.size(0) == tokens || rows.size(0) == tokens - 1);
  };
  if (!fits(states.tapped, 3) || !fits(states.last, 2) || states.tapped.size(0) != states.last.size(0) ||
      states.tapped.size(1) != static_cast<int64_t>(taps_.size()) || kept.log_sums.size() >= ids.size()) {
    throw Error(ErrorKind::bug, "states of row " + id + " do not belong to its " + std::to_string(tokens) + " tokens");
  }
  const std::lock_guard lock(mutex_);
  if (kept_.contains(id)) throw Error(ErrorKind::bug, "states of row " + id + " came twice");
  Row row{std::move(ids), std::move(kept)};
  if (bytes_ + row.bytes() > memory_bytes_) return false;
  bytes_ += row.bytes();
  kept_.emplace(id, std::move(row));
  return true;
}

std::optional<KeptStates> StateStore::take(const std::string& id, const std::vector<int64_t>& ids) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(id);
  if (found == kept_.end()) return std::nullopt;
  Row row = std::move(found->second);
  kept_.erase(found);
  bytes_ -= row.bytes();
  if (ids.size() > row.ids.size() || !std::equal(ids.begin(), ids.end(), row.ids.begin())) return std::nullopt;
  const target::TargetOutput& states = row.kept.states;
  const int64_t count = std::min(states.last.size(0), static_cast<int64_t>(ids.size()));
  std::vector<float>& log_sums = row.kept.log_sums;
  log_sums.resize(log_sums.size() - std::min(log_sums.size(), row.ids.size() - ids.size()));
  return KeptStates{{states.tapped.narrow(0, 0, count), states.last.narrow(0, 0, count)}, std::move(log_sums)};
}

}  // namespace pacer::train
