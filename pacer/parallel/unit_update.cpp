#include "pacer/parallel/unit_update.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/optim/exact_norm.h"

namespace pacer::parallel {
UnitUpdate::UnitUpdate(const UnitLayout& layout, MeshGroups& groups, const UpdateOptions& options,
                       const std::vector<at::Tensor>& initial)
    : layout_(layout), groups_(groups), options_(options) {
  const auto keep = [&](size_t index, int64_t begin, int64_t count) {
    const LayoutParameter& parameter = layout_.parameters[index];
    HeldPart part{.parameter = index, .begin = begin, .count = count};
    part.master = initial[index].detach().to(at::kFloat).contiguous().view({-1}).narrow(0, begin, count).clone();
    if (parameter.route == Route::muon) {
      part.momentum = optim::zero_momentum(part.master.view(parameter.shape), options_.muon);
    } else {
      part.first = at::zeros_like(part.master);
      part.second = at::zeros_like(part.master);
    }
    parts_.push_back(std::move(part));
  };
  for (const Piece& piece : layout_.shards[static_cast<size_t>(groups_.at.shard)].pieces) {
    const LayoutParameter& parameter = layout_.parameters[piece.parameter];
    const bool mine = parameter.placement == Placement::sharded ||
                      (parameter.placement == Placement::owner && parameter.owner.replicate == groups_.at.replicate);
    if (mine) keep(piece.parameter, piece.begin, piece.count);
    if (parameter.placement == Placement::replicated) keep(piece.parameter, 0, parameter.elements());
  }
}

void UnitUpdate::take_gradients(GradientReduction::Sums sums, float scale) {
  // Devices refuse to launch on tensors without elements.
  if (sums.owned.numel() > 0) sums.owned.mul_(scale);
  if (sums.common.numel() > 0) sums.common.mul_(scale);
  const ShardPart& own = layout_.shards[static_cast<size_t>(groups_.at.shard)];
  const int64_t owner_begin = own.owner_offset(groups_.at.replicate);
  for (HeldPart& part : parts_) {
    const auto piece = std::find_if(own.pieces.begin(), own.pieces.end(),
                                    [&](const Piece& candidate) { return candidate.parameter == part.parameter; });
    if (of(part).placement == Placement::owner) {
      part.gradient = sums.owned.narrow(0, piece->offset - owner_begin, piece->count);
      continue;
    }
    const at::Tensor chunk = sums.common.narrow(0, piece->offset - own.owner_total(), piece->count);
    if (of(part).placement == Placement::sharded || groups_.mesh.shard == 1) {
      part.gradient = chunk;
      continue;
    }
    const int64_t each = chunk_elements(of(part).elements(), groups_.mesh.shard);
    at::Tensor mine = at::zeros({each}, chunk.options()), all = at::empty({each * groups_.mesh.shard}, chunk.options());
    mine.narrow(0, 0, chunk.numel()).copy_(chunk);
    groups_.row->all_gather(all, mine, "gather in the row").wait();
    part.gradient = all.narrow(0, 0, part.count);
  }
}

void UnitUpdate::block_squares(at::Tensor& blocks, const std::vector<int64_t>& first_block, bool twice) const {
  for (const HeldPart& part : parts_) {
    const Placement placement = of(part).placement;
    int64_t begin = 0, end = part.count;
    if (placement != Placement::owner && groups_.at.replicate != 0 && !twice) continue;
    if (placement == Placement::replicated && !twice) {
      // Each rank of the first row answers for its own chunk.
      const int64_t each = chunk_elements(part.count, groups_.mesh.shard);
      begin = std::min(part.count, groups_.at.shard * each);
      end = std::min(part.count, begin + each);
    }
    if (begin == end) continue;
    const at::Tensor sums = optim::block_square_sums(part.gradient.narrow(0, begin, end - begin));
    blocks.narrow(0, first_block[part.parameter] + (part.begin + begin) / kBlock, sums.numel()).copy_(sums);
  }
}

void UnitUpdate::update(const std::vector<int64_t>& present, const at::Tensor& coefficient, const StepRates& rates) {
  std::vector<optim::MuonParameter> matrices;
  for (HeldPart& part : parts_) {
    if (present[part.parameter] == 0) continue;
    const LayoutParameter& parameter = of(part);
    ++part.steps;
    if (part.count == 0) continue;
    part.gradient.mul_(coefficient);
    if (parameter.route == Route::muon) {
      matrices.push_back({.name = parameter.name,
                          .weight = part.master.view(parameter.shape),
                          .gradient = part.gradient.view(parameter.shape),
                          .momentum = part.momentum,
                          .rate = rates.muon * parameter.rate,
                          .weight_decay = parameter.weight_decay.value_or(options_.muon_weight_decay),
                          .layout = parameter.matrices});
    } else {
      optim::AdamWOptions adamw = options_.adamw;
      adamw.weight_decay = parameter.weight_decay.value_or(adamw.weight_decay);
      optim::adamw_update(part.master, part.gradient, 1.0, part.first, part.second, part.steps,
                          rates.adamw * parameter.rate, adamw);
    }
  }
  if (!matrices.empty()) optim::muon_update(matrices, options_.muon);
  drop_gradients();
}

void UnitUpdate::drop_gradients() {
  for (HeldPart& part : parts_) part.gradient = at::Tensor();
}

}  // namespace pacer::parallel
