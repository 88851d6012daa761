#include "pacer/train/feature_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/device/device_memory.h"
#include "pacer/nn/page_tensor.h"
#include "pacer/target/exact_rows.h"

namespace pacer::train {
namespace {

// CPU time of this thread and of those that compute with it. The process's clock would count the training that goes on
// beside the target.
double team_cpu_seconds() {
  std::mutex mutex;
  double sum = 0;
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    const double mine = thread_cpu_seconds();
    const std::lock_guard lock(mutex);
    sum += mine;
  });
  return sum;
}

// Found here, one cause is named; found in the loss, it looks like a draft that diverged.
template <typename Group>
void require_finite(const Group& group, const std::vector<data::TokenRow>& rows, int64_t first_row,
                    const target::Taps& taps) {
  const auto finite = [](const at::Tensor& part) { return std::isfinite(part.sum(at::kDouble).item<double>()); };
  if (finite(group.last) && finite(group.tapped)) return;
  for (size_t slot = 0; slot + 1 < group.starts.size(); ++slot) {
    const int64_t begin = group.starts[slot], length = group.starts[slot + 1] - begin;
    const auto fail = [&](const std::string& where) {
      throw Error(
          ErrorKind::format,
          "row '" + rows[static_cast<size_t>(first_row) + slot].id + "': " + where + " of the target is not finite",
          "weights of the target are damaged, or it overflows in this dtype: fetch it again, or set model.dtype to "
          "f32");
    };
    for (size_t tap = 0; tap < taps.size(); ++tap) {
      if (!finite(group.tapped.narrow(0, begin, length).select(1, static_cast<int64_t>(tap)))) {
        fail("the hidden state behind layer " + std::to_string(taps[tap]));
      }
    }
    if (!finite(group.last.narrow(0, begin, length))) fail("the last hidden state");
  }
}

}  // namespace

uint64_t feature_bytes(int64_t tokens, const target::ModelConfig& config, size_t taps, at::ScalarType dtype) {
  return static_cast<uint64_t>(tokens * config.hidden_size) * (taps + 1) * c10::elementSize(dtype);
}

FeatureSource::FeatureSource(std::shared_ptr<const target::Target> target,
                             std::shared_ptr<const std::vector<data::TokenRow>> rows, target::Taps taps,
                             const FeatureOptions& options)
    : target_(std::move(target)), rows_(std::move(rows)), taps_(std::move(taps)), options_(options) {
  if (options_.rows_together < 1) throw Error(ErrorKind::bug, "FeatureSource: groups of no rows");
}

void FeatureSource::use_states(std::shared_ptr<StateStore> store) {
  if (!options_.decoding_kernels || store->taps() != taps_) {
    throw Error(ErrorKind::bug, "FeatureSource: states of other kernels or taps than this source computes");
  }
  store_ = std::move(store);
}

draft::FeatureBatch FeatureSource::tokens(const std::vector<int64_t>& rows) const {
  draft::FeatureBatch batch;
  batch.starts.push_back(0);
  for (const int64_t row : rows) {
    batch.starts.push_back(batch.starts.back() + static_cast<int64_t>(rows_->at(static_cast<size_t>(row)).ids.size()));
    batch.sample_ids.push_back(static_cast<uint64_t>(row));
  }
  batch.ids = at::empty({batch.starts.back()}, at::kLong);
  batch.supervised = at::empty({batch.starts.back()}, at::kByte);
  for (size_t i = 0; i < rows.size(); ++i) {
    const data::TokenRow& row = (*rows_)[static_cast<size_t>(rows[i])];
    std::ranges::copy(row.ids, batch.ids.mutable_data_ptr<int64_t>() + batch.starts[i]);
    std::ranges::copy(row.supervised, batch.supervised.mutable_data_ptr<uint8_t>() + batch.starts[i]);
  }
  return batch;
}

draft::FeatureBatch FeatureSource::batch(const std::vector<int64_t>& rows) {
  draft::FeatureBatch batch = tokens(rows);
  const int64_t hidden = target_->config().hidden_size, taps = static_cast<int64_t>(taps_.size());
  const auto make = [&](const std::vector<int64_t>& sizes, at::ScalarType dtype) {
    return pinned_for_ ? device::pinned_empty(*pinned_for_, sizes, dtype) : at::empty(sizes, dtype);
  };
  batch.tapped = make({batch.starts.back(), taps, hidden}, target_->dtype());
  batch.last = make({batch.starts.back(), hidden}, target_->dtype());
  // Group by group, so that a group is computed once for all of its rows even when nothing is kept.
  std::map<int64_t, std::vector<size_t>> places;
  for (size_t i = 0; i < rows.size(); ++i) places[rows[i] / options_.rows_together].push_back(i);
  for (const auto& [number, members] : places) {
    const auto source = group(number);
    for (const size_t i : members) {
      const auto slot = static_cast<size_t>(rows[i] % options_.rows_together);
      const int64_t from = source->starts[slot], length = source->starts[slot + 1] - from;
      batch.tapped.narrow(0, batch.starts[i], length).copy_(source->tapped.narrow(0, from, length));
      batch.last.narrow(0, batch.starts[i], length).copy_(source->last.narrow(0, from, length));
      if (!source->log_sum.defined()) continue;
      if (!batch.log_sum.defined()) batch.log_sum = make({batch.starts.back()}, source->log_sum.scalar_type());
      batch.log_sum.narrow(0, batch.starts[i], length).copy_(source->log_sum.narrow(0, from, length));
    }
  }
  return batch;
}

std::shared_ptr<const FeatureSource::Group> FeatureSource::group(int64_t number) {
  const auto found = kept_.find(number);
  if (found == kept_.end()) {
    auto made = compute(number);
    keep(number, made);
    return made;
  }
  order_.splice(order_.begin(), order_, found->second->use);
  return found->second;
}

std::shared_ptr<FeatureSource::Group> FeatureSource::compute(int64_t number) {
  const Stopwatch watch;
  const double cpu_before = team_cpu_seconds();
  const int64_t first = number * options_.rows_together;
  const int64_t last = std::min(first + options_.rows_together, rows());
  const c10::NoGradGuard frozen;
  auto group = std::make_shared<Group>();
  group->starts = {0};
  for (int64_t row = first; row < last; ++row) {
    group->starts.push_back(group->starts.back() + static_cast<int64_t>((*rows_)[static_cast<size_t>(row)].ids.size()));
  }
  at::Tensor known;
  target::TargetOutput output = states(first, group->starts, known);
  group->tapped = std::move(output.tapped);
  group->last = std::move(output.last);
  require_finite(*group, *rows_, first, taps_);
  group->log_sum = teaching_log_sums(*group, first, known);
  group->bytes = group->tapped.nbytes() + group->last.nbytes();

  ++statistics_.groups_computed;
  statistics_.rows_computed += last - first;
  statistics_.tokens_computed += group->starts.back();
  statistics_.wall_s += watch.wall();
  statistics_.cpu_s += team_cpu_seconds() - cpu_before;
  return group;
}

// States of a group's rows: those that were given, and the others in one pass.
target::TargetOutput FeatureSource::states(int64_t first, const std::vector<int64_t>& starts, at::Tensor& known) {
  const size_t count = starts.size() - 1;
  std::vector<std::optional<KeptStates>> given(count);
  std::vector<std::vector<int64_t>> missing;
  for (size_t i = 0; i < count; ++i) {
    const data::TokenRow& row = (*rows_)[static_cast<size_t>(first) + i];
    if (store_) given[i] = store_->take(row.id, row.ids);
    if (!given[i]) missing.push_back(row.ids);
  }
  target::TargetOutput computed;
  if (!missing.empty()) computed = forward(missing);
  statistics_.rows_given += static_cast<int64_t>(count - missing.size());

  const int64_t hidden = target_->config().hidden_size, taps = static_cast<int64_t>(taps_.size());
  // The last token of a given row may be without states. Nothing reads them, since no supervised token follows.
  target::TargetOutput all = {nn::page_tensor({starts.back(), taps, hidden}, target_->dtype()),
                              nn::page_tensor({starts.back(), hidden}, target_->dtype())};
  known = at::full({starts.back()}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
  int64_t next = 0;  // row of `computed`
  for (size_t i = 0; i < count; ++i) {
    const int64_t tokens = starts[i + 1] - starts[i], from = given[i] ? 0 : next;
    const target::TargetOutput& source = given[i] ? given[i]->states : computed;
    if (given[i]) {  // the last one belongs to the token before the last
      const std::vector<float>& sums = given[i]->log_sums;
      std::ranges::copy(sums, known.mutable_data_ptr<float>() + starts[i + 1] - 1 - std::ssize(sums));
    }
    const int64_t rows = given[i] ? source.last.size(0) : tokens;
    all.tapped.narrow(0, starts[i], rows).copy_(source.tapped.narrow(0, from, rows));
    all.last.narrow(0, starts[i], rows).copy_(source.last.narrow(0, from, rows));
    if (!given[i]) next += tokens;
    given[i].reset();
  }
  return all;
}

target::TargetOutput FeatureSource::forward(const std::vector<std::vector<int64_t>>& sequences) const {
  if (options_.decoding_kernels) return target::forward_exact(*target_, sequences, taps_);
  return target_->forward(target::TokenBatch::packed(sequences), taps_);
}

at::Tensor FeatureSource::teaching_log_sums(const Group& group, int64_t first_row, const at::Tensor& known) const {
  if (!log_sums_) return {};
  std::vector<int64_t> teaching, unknown;
  const float* const given = known.const_data_ptr<float>();
  for (size_t slot = 0; slot + 1 < group.starts.size(); ++slot) {
    const std::vector<uint8_t>& supervised = (*rows_)[static_cast<size_t>(first_row) + slot].supervised;
    for (size_t i = 1; i < supervised.size(); ++i) {
      if (supervised[i] == 0) continue;
      const int64_t row = group.starts[slot] + static_cast<int64_t>(i) - 1;
      teaching.push_back(row);
      if (std::isnan(given[row])) unknown.push_back(row);
    }
  }
  at::Tensor sums = known;
  if (!unknown.empty()) {
    const at::Tensor index = at::tensor(unknown, at::kLong), computed = log_sums_(group.last.index_select(0, index));
    if (!computed.defined()) return {};
    sums = known.to(computed.options()).index_copy(0, index, computed);
  }
  const at::Tensor index = at::tensor(teaching, at::kLong);
  return at::zeros({group.last.size(0)}, sums.options()).index_copy(0, index, sums.index_select(0, index));
}

void FeatureSource::keep(int64_t number, std::shared_ptr<Group> group) {
  if (group->bytes > options_.memory_bytes) return;
  while (statistics_.bytes_kept + group->bytes > options_.memory_bytes) {
    const auto oldest = kept_.find(order_.back());
    statistics_.bytes_kept -= oldest->second->bytes;
    kept_.erase(oldest);
    order_.pop_back();
  }
  order_.push_front(number);
  group->use = order_.begin();
  statistics_.bytes_kept += group->bytes;
  kept_.emplace(number, std::move(group));
}

}  // namespace pacer::train
