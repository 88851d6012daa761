// From the optimizer section of a recipe to an optimizer, and what is said about it when a run begins.
#pragma once

#include <string>
#include <vector>

#include "pacer/optim/optimizer.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

// The recipe has passed its checks.
optim::OptimizerOptions optimizer_options(const OptimizerSection& section);

// The table of parameters.txt: name, shape, route and reason of every parameter.
std::string route_page(const optim::Optimizer& optimizer, const OptimizerSection& section);

// One line per route with the number of its parameters and elements, and, where matrices take Muon, one line for each
// that does not.
std::vector<std::string> route_summary(const optim::Optimizer& optimizer);

}  // namespace pacer::train
