// The way of one unit's weights: from the ranks that update them to the tensors that the forward pass reads.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/parallel/mesh_groups.h"
#include "pacer/parallel/unit_layout.h"

namespace pacer::parallel {

// How the weights of owner placement reach the ranks of a row.
enum class Unshard {
  broadcast,  // from the rank of the owner's shard index, each time
  all_gather  // once per step scattered over the row, then gathered each time: no rank serves alone
};

const char* name_of(Unshard unshard);
Unshard parse_unshard(const std::string& text);  // "broadcast" | "all_gather"; throws Error{usage}

// Publishing goes over the rows: the column of an owner's shard index gets the weights in their own dtype, so that each
// row has a holder. Acquiring goes inside of a row. With one rank in a row or one row, that half costs nothing.
class UnitWeights {
 public:
  // live: the tensors that the model reads, by place in the layout's parameters, each alone in its storage. Free: their
  // storage is given back by release() and filled by wait_acquire(); autograd keeps seeing the same tensors.
  // Replicated parameters always stay.
  UnitWeights(const UnitLayout& layout, MeshGroups& groups, std::vector<at::Tensor> live, Unshard unshard, bool free);

  // Places for what this rank updated, in the weights' dtype: fill them, then publish. parameter: place in the layout.
  at::Tensor owned(size_t parameter);  // flat, of a parameter that this rank owns
  at::Tensor chunk(size_t parameter);  // flat, this rank's chunk of a sharded one
  const at::Tensor& live(size_t parameter) const { return live_[parameter]; }

  void start_publish();
  void finish_publish();  // before what was published may be written again
  void start_acquire();   // nothing to do while the newest weights are here
  void wait_acquire();
  void release();
  bool acquired() const { return fresh_; }

  // For proofs that a fault is found (gate.h): the next acquire brings nothing new to this rank.
  void keep_stale() { stale_ = true; }

 private:
  const ShardPart& part(int64_t shard) const { return layout_.shards[static_cast<size_t>(shard)]; }
  void scatter_over_row();
  at::Tensor owner_part(int64_t shard) const;  // the published owner weights of a shard, once acquired
  void fill_live();

  const UnitLayout& layout_;
  MeshGroups& groups_;
  std::vector<at::Tensor> live_;
  Unshard unshard_;
  bool free_;
  bool fresh_ = false, acquiring_ = false, published_ = true, scattered_ = false, stale_ = false;
  at::Tensor resident_;                 // [owner total of this shard]
  at::Tensor scattered_part_;           // [sum over shards of the chunk of their owner parts]
  at::Tensor chunks_;                   // [sum over sharded parameters of the padded chunk]
  std::vector<int64_t> chunk_offsets_;  // [parameter] into chunks_, -1 for others
  std::vector<Pending> publishing_, pending_;
  std::vector<at::Tensor> parts_;  // [shard] while acquiring
  at::Tensor gathered_, gathered_parts_;
};

}  // namespace pacer::parallel
