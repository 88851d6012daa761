#include "pacer/parallel/unit_weights.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"

namespace pacer::parallel {
namespace {

void free_storage(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(0);
}

void allocate_storage(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const size_t bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  if (storage->nbytes() == bytes) return;
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

int64_t part_of(int64_t total, int64_t ranks) { return (total + ranks - 1) / ranks; }

}  // namespace

const char* name_of(Unshard unshard) { return unshard == Unshard::broadcast ? "broadcast" : "all_gather"; }

Unshard parse_unshard(const std::string& text) {
  if (text == "broadcast") return Unshard::broadcast;
  if (text == "all_gather") return Unshard::all_gather;
  throw Error(ErrorKind::usage, "'" + text + "' is no way to bring weights to a row",
              "allowed are broadcast and all_gather");
}

UnitWeights::UnitWeights(const UnitLayout& layout, MeshGroups& groups, std::vector<at::Tensor> live, Unshard unshard,
                         bool free)
    : layout_(layout), groups_(groups), live_(std::move(live)), unshard_(unshard), free_(free) {
  const auto options = at::TensorOptions().dtype(layout_.weight_dtype()).device(live_.front().device());
  int64_t chunks = 0;
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const LayoutParameter& parameter = layout_.parameters[i];
    const at::Tensor& tensor = live_[i];
    if (!tensor.is_contiguous() || tensor.storage_offset() != 0 || tensor.numel() != parameter.elements() ||
        tensor.storage().nbytes() != static_cast<size_t>(tensor.numel()) * tensor.element_size()) {
      throw Error(ErrorKind::usage, "the weight " + parameter.name + " shares its memory with another tensor",
                  "give every parameter a contiguous tensor of its own; a tied weight is one tensor");
    }
    chunk_offsets_.push_back(parameter.placement == Placement::sharded ? chunks : -1);
    if (parameter.placement == Placement::sharded) chunks += chunk_elements(parameter.elements(), groups_.mesh.shard);
  }
  resident_ = at::zeros({part(groups_.at.shard).owner_total()}, options);
  chunks_ = at::zeros({chunks}, options);
  int64_t scattered = 0;
  for (int64_t shard = 0; shard < groups_.mesh.shard; ++shard) {
    scattered += part_of(part(shard).owner_total(), groups_.mesh.shard);
  }
  if (unshard_ == Unshard::all_gather) scattered_part_ = at::zeros({scattered}, options);
}

at::Tensor UnitWeights::owned(size_t parameter) {
  for (const Piece& piece : part(groups_.at.shard).pieces) {
    if (piece.parameter == parameter) return resident_.narrow(0, piece.offset, piece.count);
  }
  throw Error(ErrorKind::bug, layout_.parameters[parameter].name + " is not kept in this column");
}

at::Tensor UnitWeights::chunk(size_t parameter) {
  for (const Piece& piece : part(groups_.at.shard).pieces) {
    if (piece.parameter == parameter) return chunks_.narrow(0, chunk_offsets_[parameter], piece.count);
  }
  throw Error(ErrorKind::bug, layout_.parameters[parameter].name + " is not sharded");
}

void UnitWeights::start_publish() {
  if (acquiring_) throw Error(ErrorKind::bug, "unit " + layout_.name + " is published while it is acquired");
  fresh_ = false;
  published_ = scattered_ = false;
  for (int64_t replicate = 0; replicate < groups_.mesh.replicate; ++replicate) {
    const ShardPart& own = part(groups_.at.shard);
    const int64_t count = own.owner_counts[static_cast<size_t>(replicate)];
    if (count == 0) continue;
    publishing_.push_back(groups_.column->broadcast(resident_.narrow(0, own.owner_offset(replicate), count), replicate,
                                                    "publish over the rows"));
  }
}

void UnitWeights::finish_publish() {
  for (Pending& pending : publishing_) pending.wait();
  publishing_.clear();
  published_ = true;
}

void UnitWeights::scatter_over_row() {
  const int64_t ranks = groups_.mesh.shard;
  const int64_t mine = part_of(resident_.numel(), ranks);
  at::Tensor padded = at::zeros({mine * ranks}, resident_.options());
  padded.narrow(0, 0, resident_.numel()).copy_(resident_);
  std::vector<int64_t> received;
  for (int64_t shard = 0; shard < ranks; ++shard) received.push_back(part_of(part(shard).owner_total(), ranks));
  groups_.row
      ->exchange(scattered_part_, received, padded, std::vector<int64_t>(static_cast<size_t>(ranks), mine),
                 "scatter in the row")
      .wait();
  scattered_ = true;
}

void UnitWeights::start_acquire() {
  if (fresh_ || acquiring_) return;
  acquiring_ = true;
  const int64_t ranks = groups_.mesh.shard;
  if (!published_ && ranks > 1) finish_publish();  // alone in its row nothing is sent on, so wait_acquire() waits
  parts_.assign(static_cast<size_t>(ranks), {});
  if (ranks > 1 && unshard_ == Unshard::all_gather && scattered_part_.numel() > 0) {
    if (!scattered_) scatter_over_row();
    gathered_parts_ = at::empty({ranks * scattered_part_.numel()}, resident_.options());
    pending_.push_back(groups_.row->all_gather(gathered_parts_, scattered_part_, "acquire"));
  } else {
    for (int64_t shard = 0; shard < ranks; ++shard) {
      const int64_t count = part(shard).owner_total();
      if (count == 0) continue;
      parts_[static_cast<size_t>(shard)] =
          shard == groups_.at.shard ? resident_ : at::empty({count}, resident_.options());
      pending_.push_back(groups_.row->broadcast(parts_[static_cast<size_t>(shard)], shard, "acquire"));
    }
  }
  if (chunks_.numel() > 0) {
    gathered_ = ranks == 1 ? chunks_ : at::empty({ranks * chunks_.numel()}, chunks_.options());
    if (ranks > 1) pending_.push_back(groups_.row->all_gather(gathered_, chunks_, "acquire"));
  }
}

at::Tensor UnitWeights::owner_part(int64_t shard) const {
  if (!gathered_parts_.defined()) return parts_[static_cast<size_t>(shard)];
  const int64_t ranks = groups_.mesh.shard;
  int64_t offset = 0;
  for (int64_t s = 0; s < shard; ++s) offset += part_of(part(s).owner_total(), ranks);
  const int64_t each = part_of(part(shard).owner_total(), ranks);
  return gathered_parts_.view({ranks, -1})
      .narrow(1, offset, each)
      .reshape({-1})
      .narrow(0, 0, part(shard).owner_total());
}

void UnitWeights::wait_acquire() {
  if (fresh_) return;
  if (!acquiring_) start_acquire();
  if (!published_) finish_publish();
  for (Pending& pending : pending_) pending.wait();
  pending_.clear();
  fill_live();
  parts_.clear();
  gathered_ = gathered_parts_ = at::Tensor();
  acquiring_ = false;
  fresh_ = true;
}

void UnitWeights::fill_live() {
  // variable_data() has a version counter of its own: what autograd saved of the live tensor stays valid.
  std::vector<at::Tensor> flat;
  for (size_t i = 0; i < live_.size(); ++i) {
    if (layout_.parameters[i].placement != Placement::replicated) allocate_storage(live_[i]);
    flat.push_back(live_[i].variable_data().view({-1}));
  }
  if (std::exchange(stale_, false)) return;
  for (int64_t shard = 0; shard < groups_.mesh.shard; ++shard) {
    const at::Tensor owners = part(shard).owner_total() > 0 ? owner_part(shard) : at::Tensor();
    for (const Piece& piece : part(shard).pieces) {
      const Placement placement = layout_.parameters[piece.parameter].placement;
      at::Tensor place = flat[piece.parameter].narrow(0, piece.begin, piece.count);
      if (placement == Placement::owner) place.copy_(owners.narrow(0, piece.offset, piece.count));
      if (placement == Placement::sharded) {
        place.copy_(gathered_.narrow(0, shard * chunks_.numel() + chunk_offsets_[piece.parameter], piece.count));
      }
    }
  }
}

void UnitWeights::release() {
  if (!free_) return;
  if (acquiring_) wait_acquire();  // memory must not go while a message is written into it
  for (size_t i = 0; i < live_.size(); ++i) {
    if (layout_.parameters[i].placement != Placement::replicated) free_storage(live_[i]);
  }
  fresh_ = false;
}

}  // namespace pacer::parallel
