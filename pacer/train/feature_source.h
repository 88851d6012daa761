// Hidden states of the target for training rows, computed when they are first asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/data/rows.h"
#include "pacer/device/runtime.h"
#include "pacer/draft/features.h"
#include "pacer/target/target.h"
#include "pacer/train/state_store.h"

namespace pacer::train {

struct FeatureOptions {
  int64_t rows_together = 1;  // rows of one pass of the target
  uint64_t memory_bytes = 0;  // for features that are kept
  // The kernels that the target decodes with (target::forward_exact) instead of the library's products: the states are
  // then, to the bit, those that a draft sees when it is used, and those of a StateStore.
  bool decoding_kernels = false;
};

// What the features of `tokens` tokens take: taps and last state in the target's dtype.
uint64_t feature_bytes(int64_t tokens, const target::ModelConfig& config, size_t taps, at::ScalarType dtype);

// Rows are divided into fixed groups by their number (0 .. G-1, G .. 2G-1, ...), and a group is always computed in one
// packed pass. So the features of a row have the same bits whichever rows it is asked for with, and whether they were
// kept or are computed again. Kept groups leave in the order in which they were last used. Not thread-safe, but
// tokens() and rows() may be asked while another thread makes a batch, and two sources may share a target and a store.
class FeatureSource {
 public:
  FeatureSource(std::shared_ptr<const target::Target> target, std::shared_ptr<const std::vector<data::TokenRow>> rows,
                target::Taps taps, const FeatureOptions& options);

  // How the target's normalisers follow from its last states: DraftTraining::teacher_log_sums, or with decoding kernels
  // target::exact_log_sums, whose bits a StateStore has. They are then kept with the features of the rows that teach,
  // those before a supervised token; the others hold 0. Before the first batch.
  void use_log_sums(std::function<at::Tensor(const at::Tensor& last)> log_sums) { log_sums_ = std::move(log_sums); }

  // Batches are then made in host memory that the runtime's device can copy from while the host goes on.
  void use_pinned_memory(const device::Runtime& runtime) { pinned_for_ = runtime; }

  // States that need not be computed again; those of other rows are. Only with decoding kernels, whose bits they have.
  // Throws Error{bug} for other taps.
  void use_states(std::shared_ptr<StateStore> store);

  int64_t rows() const { return static_cast<int64_t>(rows_->size()); }

  // Tokens of these rows without features: enough to plan blocks. A row's sample id is its number.
  draft::FeatureBatch tokens(const std::vector<int64_t>& rows) const;
  // Tokens and features.
  draft::FeatureBatch batch(const std::vector<int64_t>& rows);

  struct Statistics {
    int64_t groups_computed = 0, rows_computed = 0, tokens_computed = 0;
    int64_t rows_given = 0;        // taken from a StateStore
    double wall_s = 0, cpu_s = 0;  // in the target; of the thread that asks and of the threads that help it
    uint64_t bytes_kept = 0;
  };
  const Statistics& statistics() const { return statistics_; }

 private:
  struct Group {
    at::Tensor tapped, last;  // [T, m, H], [T, H]
    at::Tensor log_sum;       // [T] f32, or undefined
    std::vector<int64_t> starts;
    uint64_t bytes = 0;
    std::list<int64_t>::iterator use;  // its place in order_
  };
  std::shared_ptr<const Group> group(int64_t number);
  std::shared_ptr<Group> compute(int64_t number);
  // known: [T] f32, gets the normalisers that came with states; NaN elsewhere.
  target::TargetOutput states(int64_t first, const std::vector<int64_t>& starts, at::Tensor& known);
  target::TargetOutput forward(const std::vector<std::vector<int64_t>>& sequences) const;
  at::Tensor teaching_log_sums(const Group& group, int64_t first_row, const at::Tensor& known) const;
  void keep(int64_t number, std::shared_ptr<Group> group);

  std::shared_ptr<const target::Target> target_;
  std::shared_ptr<const std::vector<data::TokenRow>> rows_;
  target::Taps taps_;
  FeatureOptions options_;
  std::shared_ptr<StateStore> store_;
  std::function<at::Tensor(const at::Tensor&)> log_sums_;
  std::optional<device::Runtime> pinned_for_;
  std::unordered_map<int64_t, std::shared_ptr<Group>> kept_;
  std::list<int64_t> order_;  // most recently used first
  Statistics statistics_;
};

}  // namespace pacer::train
