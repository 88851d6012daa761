// What a rank keeps of one unit's parameters, and the update of it: masters, states, counters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/optim/adamw.h"
#include "pacer/optim/muon.h"
#include "pacer/parallel/gradient_reduction.h"
#include "pacer/parallel/mesh_groups.h"
#include "pacer/parallel/unit_layout.h"

namespace pacer::parallel {

struct UpdateOptions {
  optim::MuonOptions muon;
  double muon_weight_decay = 0.1;
  optim::AdamWOptions adamw{.weight_decay = 0.01};
};

// The learning rates of one step.
struct StepRates {
  double muon = 0, adamw = 0;
};

// A run of one parameter that this rank updates.
struct HeldPart {
  size_t parameter = 0;  // place in the layout
  int64_t begin = 0, count = 0;
  at::Tensor master{};           // f32, flat
  at::Tensor gradient{};         // f32, flat; undefined outside of a step
  at::Tensor momentum{};         // of route muon, [rows, columns]
  at::Tensor first{}, second{};  // of AdamW, f32, flat
  int64_t steps = 0;             // updates that it has seen; an empty chunk counts along
};

class UnitUpdate {
 public:
  // initial: the whole values by place in the layout, in f32 or the weights' dtype, the same on every rank.
  UnitUpdate(const UnitLayout& layout, MeshGroups& groups, const UpdateOptions& options,
             const std::vector<at::Tensor>& initial);

  // Gradients of the held parts out of the sums, multiplied once by `scale` in f32. Gathers the gradients of replicated
  // parameters in the row.
  void take_gradients(GradientReduction::Sums sums, float scale);

  // Squares of the gradients, summed in f32 over blocks of kBlock elements, into blocks[first_block[parameter] +
  // block]. Every block is written by exactly one rank of the mesh; `twice` breaks that rule for replicated ones
  // (gate.h).
  void block_squares(at::Tensor& blocks, const std::vector<int64_t>& first_block, bool twice) const;

  // Updates what has a gradient somewhere: present[parameter] is how many leaves had one. coefficient: 0-dimensional
  // f32, what clipping multiplies gradients with. Gradients are gone afterwards.
  void update(const std::vector<int64_t>& present, const at::Tensor& coefficient, const StepRates& rates);
  void drop_gradients();

  std::vector<HeldPart>& parts() { return parts_; }
  const UnitLayout& layout() const { return layout_; }

 private:
  const LayoutParameter& of(const HeldPart& part) const { return layout_.parameters[part.parameter]; }

  const UnitLayout& layout_;
  MeshGroups& groups_;
  UpdateOptions options_;
  std::vector<HeldPart> parts_;
};

}  // namespace pacer::parallel
