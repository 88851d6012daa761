// From the optimizer section of a recipe to an optimizer, and what is said about it when a run begins.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pacer/optim/optimizer.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

// The recipe has passed its checks.
optim::OptimizerOptions optimizer_options(const OptimizerSection& section);

// Route, rate and decay of every parameter, by name.
std::vector<optim::RoutedParameter> routed_parameters(const std::map<std::string, at::Tensor>& parameters,
                                                      const optim::OptimizerOptions& options);

// The table of parameters.txt: name, shape, route, reason, largest learning rate and decay of every parameter.
std::string route_page(const std::vector<optim::RoutedParameter>& routed, const OptimizerSection& section);

// One line per route with the number of its parameters and elements, and, where matrices take Muon, one line for each
// that does not.
std::vector<std::string> route_summary(const std::vector<optim::RoutedParameter>& routed);

}  // namespace pacer::train
