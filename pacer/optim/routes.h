// Which optimizer takes which parameter, and why: every parameter has one route and a reason that is shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pacer/optim/muon.h"

namespace pacer::optim {

//   muon           momentum and an orthogonal update of the whole matrix
//   adamw          AdamW on the whole tensor
//   sharded_adamw  AdamW whose tensor is cut among ranks where there are several (large embeddings and heads); the same
//                  mathematics, and on one process the same as adamw
enum class Route { muon, adamw, sharded_adamw };
Route parse_route(const std::string& name);  // the names above; throws Error{usage}
std::string name_of(Route route);

// What parameters whose name matches `pattern` get, `*` stands for any text. Each field is taken from the first rule
// that matches and has it.
struct GroupRule {
  std::string pattern;
  std::optional<Route> route{};
  std::optional<double> rate{};          // factor on the learning rate
  std::optional<double> weight_decay{};  // in place of the route's
  std::optional<MatrixLayout> layout{};
};

struct RoutedParameter {
  std::string name;
  std::vector<int64_t> sizes;
  Route route = Route::adamw;
  std::string reason;  // never empty
  double rate = 1;
  std::optional<double> weight_decay{};
  MatrixLayout layout{};
};

struct RouteOptions {
  Route matrix = Route::adamw;  // of tensors with two dimensions and more
  Route rest = Route::adamw;    // of the others; not muon
  std::vector<GroupRule> rules{};
};

// parameters: name and sizes, in any order; the result has the same.
//
// With matrices on the route muon, embeddings and output heads take `rest` unless a rule says otherwise (names with
// "embed", or a part that is "head" or ends in "_head"): their rows are used one by one, and an orthogonal update makes
// the rare ones as large as the common ones. So a tensor with two dimensions misses muon only by a rule, and the
// reason names it.
//
// Throws Error{usage}: a rule that matches no parameter, one that gives muon to a scalar, a layout that does not fit,
// `rest` is muon, a name twice.
std::vector<RoutedParameter> route_parameters(
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters, const RouteOptions& options);

// One line per parameter: name, shape, route, effective scale of a Muon update, reason. For logs.
std::vector<std::string> route_table(const std::vector<RoutedParameter>& parameters, UpdateScale scale);

// `*` stands for any run of characters, also empty.
bool matches(const std::string& pattern, const std::string& name);

}  // namespace pacer::optim
