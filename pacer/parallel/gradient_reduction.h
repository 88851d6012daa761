// The way of one unit's gradients: from every rank to the ranks that update with them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/parallel/mesh_groups.h"
#include "pacer/parallel/tree_sum.h"
#include "pacer/parallel/unit_layout.h"

namespace pacer::parallel {

// How the micro-batches of a step come together.
enum class Accumulation {
  reduce_each,    // every micro-batch travels: least memory
  no_sync,        // they are summed on their rank and travel once
  replicate_gate  // every micro-batch travels inside of its row, the rows meet once
};

const char* name_of(Accumulation accumulation);
Accumulation parse_accumulation(const std::string& text);  // "reduce_each" | "no_sync" | "replicate_gate"

struct ReductionOptions {
  int64_t micro_batches = 1;  // K, per rank and step
  Accumulation accumulation = Accumulation::reduce_each;
  // Leaves of the tree of sums (tree_sum.h). exact: micro-batch k of data rank d is leaf d K + k of d K .. K W, in f32;
  // else a rank is one leaf, its micro-batches are added as they come, and messages have the layout's dtype.
  bool exact = false;
};

// Sums over all micro-batches and ranks of flat f32 gradients, for one unit. Stage 1 exchanges inside of the row,
// stage 2 inside of the column; both send each rank only what it keeps and add in the order of the tree.
class GradientReduction {
 public:
  // device: where gradients, sums and messages lie.
  GradientReduction(const UnitLayout& layout, MeshGroups& groups, const ReductionOptions& options, c10::Device device);

  // Takes in micro-batch k of this rank and begins to send. gradients: by place in the layout's parameters, undefined
  // where there is none, which counts as +0. Every rank calls start, advance, finish for the same k in the same order.
  void start(int64_t micro_batch, const std::vector<at::Tensor>& gradients);
  void advance();  // waits for stage 1 and begins stage 2
  void finish();   // waits for stage 2

  // After finish() of the last micro-batch: what this rank's owner part and the common part of its shard came to, f32.
  struct Sums {
    at::Tensor owned, common;
  };
  Sums take();

  // Forgets every micro-batch that was taken in. Nothing may be under way.
  void abandon();

  // For proofs that a fault is found (gate.h): what stage 2 brings is thrown away, this rank's own row stands for all.
  void ignore_other_rows() { ignore_other_rows_ = true; }

 private:
  enum class State { idle, row, column };
  at::Tensor collect(const std::vector<at::Tensor>& gradients, at::ScalarType dtype) const;
  std::vector<TreeNode> nodes_of_rank(int64_t data_rank) const;
  std::vector<TreeNode> nodes_of_row(int64_t replicate) const;
  int64_t leaves() const;
  bool leaves_as_they_are() const;  // leaves of a row that are no neighbours in the tree go over the rows unsummed
  bool last() const { return micro_batch_ + 1 == options_.micro_batches; }
  const ShardPart& part() const { return layout_.shards[static_cast<size_t>(groups_.at.shard)]; }
  int64_t common_begin(int64_t replicate) const;
  int64_t kept(int64_t replicate) const;  // elements that a column member of this replicate index gets in stage 2
  at::Tensor for_member(const at::Tensor& value, int64_t replicate) const;
  void start_column(std::vector<TreeSum::Part> parts);
  void take_in(const at::Tensor& received);

  const UnitLayout& layout_;
  MeshGroups& groups_;
  ReductionOptions options_;
  c10::Device device_;
  State state_ = State::idle;
  int64_t micro_batch_ = 0;
  Pending pending_;
  at::Tensor received_;
  TreeSum local_, row_, final_;
  at::Tensor local_sum_;                // no_sync without exact
  std::vector<TreeSum::Part> partial_;  // replicate_gate without exact
  at::Tensor result_;                   // [kept(own)] f32
  bool ignore_other_rows_ = false;
};

}  // namespace pacer::parallel
