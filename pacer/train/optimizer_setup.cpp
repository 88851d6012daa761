#include "pacer/train/optimizer_setup.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "pacer/base/numbers.h"
#include "pacer/train/draft_setup.h"

namespace pacer::train {
namespace {

optim::NewtonSchulzOptions newton_schulz_options(const OptimizerSection& section) {
  using Form = optim::NewtonSchulzOptions::Form;
  optim::NewtonSchulzOptions options;
  options.form = section.newton_schulz == "direct" ? Form::direct
                 : section.newton_schulz == "gram" ? Form::gram
                                                   : Form::automatic;
  options.coefficients = optim::coefficients_of(section.coefficients);
  options.restarts = section.restarts;
  options.storage = section.newton_schulz_dtype == "f16" ? at::kHalf : parse_dtype(section.newton_schulz_dtype);
  return options;
}

optim::GroupRule rule_for(const std::string& pattern) {
  optim::GroupRule rule;
  rule.pattern = pattern;
  return rule;
}

std::string elements_text(int64_t elements) {
  return format_count(elements) + (elements == 1 ? " element" : " elements");
}

std::string short_number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

int64_t elements_of(const optim::RoutedParameter& parameter) {
  int64_t elements = 1;
  for (const int64_t size : parameter.sizes) elements *= size;
  return elements;
}

}  // namespace

optim::OptimizerOptions optimizer_options(const OptimizerSection& section) {
  optim::OptimizerOptions options;
  options.adamw = {
      .beta1 = section.beta1, .beta2 = section.beta2, .epsilon = section.epsilon, .weight_decay = section.weight_decay};
  options.routes.matrix = optim::parse_route(section.matrix);
  options.routes.rest = optim::parse_route(section.rest);
  // Each mapping has a field of its own, so their order among each other does not matter.
  for (const auto& [pattern, route] : section.routes) {
    options.routes.rules.push_back(rule_for(pattern));
    options.routes.rules.back().route = optim::parse_route(route);
  }
  for (const auto& [pattern, rate] : section.rates) {
    options.routes.rules.push_back(rule_for(pattern));
    options.routes.rules.back().rate = rate;
  }
  for (const auto& [pattern, decay] : section.decays) {
    options.routes.rules.push_back(rule_for(pattern));
    options.routes.rules.back().weight_decay = decay;
  }
  options.muon.momentum = section.momentum;
  options.muon.nesterov = section.nesterov;
  options.muon.momentum_dtype = parse_dtype(section.momentum_dtype);
  options.muon.scale = optim::parse_update_scale(section.update_scale);
  options.muon.newton_schulz = newton_schulz_options(section);
  options.muon_rate = section.matrix_learning_rate.value_or(section.learning_rate) / section.learning_rate;
  options.muon_weight_decay = section.matrix_weight_decay.value_or(section.weight_decay);
  return options;
}

std::vector<optim::RoutedParameter> routed_parameters(const std::map<std::string, at::Tensor>& parameters,
                                                      const optim::OptimizerOptions& options) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  for (const auto& [name, weight] : parameters) shapes.emplace_back(name, weight.sizes().vec());
  return optim::route_parameters(shapes, options.routes);
}

std::string route_page(const std::vector<optim::RoutedParameter>& routed, const OptimizerSection& section) {
  const optim::OptimizerOptions options = optimizer_options(section);
  const auto lines = optim::route_table(routed, options.muon.scale);
  std::string page;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool muon = routed[i].route == optim::Route::muon;
    const double rate = section.learning_rate * (muon ? options.muon_rate : 1) * routed[i].rate;
    const double decay = routed[i].weight_decay.value_or(muon ? options.muon_weight_decay : options.adamw.weight_decay);
    page += lines[i] + ", rate " + short_number(rate) + ", decay " + short_number(decay) + "\n";
  }
  return page;
}

std::vector<std::string> route_summary(const std::vector<optim::RoutedParameter>& routed) {
  std::map<optim::Route, std::pair<int64_t, int64_t>> routes;
  for (const optim::RoutedParameter& parameter : routed) {
    auto& [count, elements] = routes[parameter.route];
    ++count, elements += elements_of(parameter);
  }
  std::vector<std::string> lines;
  for (const auto& [route, sums] : routes) {
    lines.push_back("optimizer: " + optim::name_of(route) + " takes " + format_count(sums.first) +
                    (sums.first == 1 ? " parameter" : " parameters") + " with " + elements_text(sums.second));
  }
  if (!routes.contains(optim::Route::muon)) return lines;
  for (const optim::RoutedParameter& parameter : routed) {
    if (parameter.sizes.size() < 2 || parameter.route == optim::Route::muon) continue;
    lines.push_back("optimizer: the matrix " + parameter.name + " takes " + optim::name_of(parameter.route) + ": " +
                    parameter.reason);
  }
  return lines;
}

}  // namespace pacer::train
