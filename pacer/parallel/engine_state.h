// What stands behind Engine; for its own files only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pacer/parallel/engine.h"

namespace pacer::parallel {

struct Engine::UnitState {
  UnitState(UnitLayout unit_layout, MeshGroups& groups, const EngineOptions& options, std::vector<at::Tensor> live,
            const std::vector<at::Tensor>& initial, std::vector<size_t> parameter_indices)
      : layout(std::move(unit_layout)),
        reduction(layout, groups, options.reduction, live.front().device()),
        weights(layout, groups, std::move(live), options.unshard, options.free_weights),
        update(layout, groups, options.update, initial),
        indices(std::move(parameter_indices)) {}

  UnitLayout layout;
  GradientReduction reduction;
  UnitWeights weights;
  UnitUpdate update;
  std::vector<size_t> indices;       // [place] the parameter's number in the counts of a step
  std::vector<int64_t> first_block;  // [place] of its squares in the vector of the norm
};

// The forward passes of one micro-batch that wait for their backward.
struct Engine::Tape {
  struct Record {
    Tensors inputs, outputs;  // outputs: with their graph; empty when they are computed again
    Tensors leaves;           // what run() returned
  };
  std::vector<std::optional<Record>> records;  // [call]
  size_t next = 0;                             // the first call that may still come
};

}  // namespace pacer::parallel
