// From a recipe to the engine that updates a model on many ranks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/optim/optimizer.h"
#include "pacer/parallel/checkpoint.h"
#include "pacer/parallel/engine.h"
#include "pacer/train/ranks.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

// An engine over these f32 masters, with the routes and settings of the optimizer. Without segments the caller runs its
// own forward and backward pass. Masters become those of rank 0. calls: as Engine's.
std::unique_ptr<parallel::Engine> make_engine(const Recipe& recipe, Ranks& ranks,
                                              const std::map<std::string, at::Tensor>& masters,
                                              std::vector<parallel::Segment> segments = {},
                                              std::vector<size_t> calls = {});

// The rates of a step whose schedule says `learning_rate`.
parallel::StepRates step_rates(const OptimizerSection& section, double learning_rate);

// Throws Error{usage} naming step and parameter when the norm of the step's gradients was not finite.
void require_finite_norm(const parallel::StepReport& report, int64_t step);

// The name that a run's checkpoints go by, whoever wrote them.
parallel::CheckpointName checkpoint_name();

}  // namespace pacer::train
