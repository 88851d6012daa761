#include "pacer/optim/routes.h"

#include <algorithm>
#include <array>
#include <set>

#include "pacer/base/error.h"
#include "pacer/base/numbers.h"

namespace pacer::optim {
namespace {

constexpr std::array<const char*, 5> kHeadsAndEmbeddings = {"*embed*", "head.*", "*.head.*", "*_head.*", "*_head"};

bool is_matrix(const RoutedParameter& parameter) { return parameter.sizes.size() >= 2; }

void choose_route(RoutedParameter& parameter, const RouteOptions& options) {
  for (const GroupRule& rule : options.rules) {
    if (!rule.route || !matches(rule.pattern, parameter.name)) continue;
    parameter.route = *rule.route;
    parameter.reason = "rule '" + rule.pattern + "'";
    return;
  }
  if (!is_matrix(parameter)) {
    parameter.route = options.rest;
    parameter.reason = parameter.sizes.empty() ? "a scalar" : "a vector";
    return;
  }
  if (options.matrix == Route::muon) {
    for (const char* pattern : kHeadsAndEmbeddings) {
      if (!matches(pattern, parameter.name)) continue;
      parameter.route = options.rest;
      parameter.reason = "built-in rule '" + std::string(pattern) + "': embeddings and heads";
      return;
    }
  }
  parameter.route = options.matrix;
  parameter.reason = "a matrix";
}

// The value of the first rule that matches and has one.
template <typename T>
std::optional<T> of_rules(const std::vector<GroupRule>& rules, const std::string& name,
                          std::optional<T> GroupRule::* field) {
  for (const GroupRule& rule : rules) {
    if (rule.*field && matches(rule.pattern, name)) return rule.*field;
  }
  return std::nullopt;
}

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

}  // namespace

Route parse_route(const std::string& name) {
  for (const Route route : {Route::muon, Route::adamw, Route::sharded_adamw}) {
    if (name == name_of(route)) return route;
  }
  throw Error(ErrorKind::usage, "route '" + name + "', allowed: muon, adamw, sharded_adamw");
}

std::string name_of(Route route) {
  return route == Route::muon ? "muon" : route == Route::adamw ? "adamw" : "sharded_adamw";
}

bool matches(const std::string& pattern, const std::string& name) {
  size_t p = 0, n = 0, star = std::string::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1, n = ++mark;  // let the last star swallow one more character
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<RoutedParameter> route_parameters(
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters, const RouteOptions& options) {
  if (options.rest == Route::muon) {
    throw Error(
        ErrorKind::usage, "the route of vectors and scalars is muon, allowed: adamw, sharded_adamw",
        "an orthogonal update of a vector is the vector divided by its length; name it by a rule if you mean it");
  }
  for (const GroupRule& rule : options.rules) {
    const auto hit = [&](const auto& parameter) { return matches(rule.pattern, parameter.first); };
    if (std::ranges::any_of(parameters, hit)) continue;
    throw Error(ErrorKind::usage, "optimizer rule '" + rule.pattern + "' matches no parameter",
                parameters.empty()
                    ? std::string()
                    : "parameters are named like '" + parameters.front().first + "'; * matches any text");
  }
  std::set<std::string> names;
  std::vector<RoutedParameter> routed;
  for (const auto& [name, sizes] : parameters) {
    if (!names.insert(name).second) throw Error(ErrorKind::usage, "parameter '" + name + "' is there twice");
    RoutedParameter parameter;
    parameter.name = name, parameter.sizes = sizes;
    choose_route(parameter, options);
    parameter.rate = of_rules(options.rules, name, &GroupRule::rate).value_or(1.0);
    parameter.weight_decay = of_rules(options.rules, name, &GroupRule::weight_decay);
    parameter.layout = of_rules(options.rules, name, &GroupRule::layout).value_or(MatrixLayout{});
    if (parameter.route == Route::muon) matrix_view(name, sizes, parameter.layout);  // throws where it does not fit
    routed.push_back(std::move(parameter));
  }
  return routed;
}

std::vector<std::string> route_table(const std::vector<RoutedParameter>& parameters, UpdateScale scale) {
  size_t name_width = 0, shape_width = 0;
  for (const RoutedParameter& parameter : parameters) {
    name_width = std::max(name_width, parameter.name.size());
    shape_width = std::max(shape_width, shape_text(parameter.sizes).size());
  }
  std::vector<std::string> lines;
  for (const RoutedParameter& parameter : parameters) {
    const auto padded = [](std::string text, size_t width) {
      text.resize(std::max(width, text.size()), ' ');
      return text + "  ";
    };
    std::string line = padded(parameter.name, name_width) + padded(shape_text(parameter.sizes), shape_width) +
                       padded(name_of(parameter.route), 13) + parameter.reason;
    if (parameter.route == Route::muon) {
      const MatrixView view = matrix_view(parameter.name, parameter.sizes, parameter.layout);
      std::vector<std::string> scales;
      for (const MatrixBlock& block : view.blocks) {
        const std::string text = format_fixed(update_scale(scale, block.rows, view.columns), 3);
        if (std::ranges::find(scales, text) == scales.end()) scales.push_back(text);
      }
      line += ", scale";
      for (const std::string& text : scales) line += " " + text;
      if (view.blocks.size() > 1) line += " in " + std::to_string(view.blocks.size()) + " matrices";
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace pacer::optim
