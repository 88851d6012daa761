// Who updates which parameter: every matrix has one owner that orthogonalises it once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pacer/optim/routes.h"
#include "pacer/parallel/mesh.h"

namespace pacer::parallel {

// How a parameter is updated, and so how its gradient travels: muon and adamw to one owner, sharded_adamw to the chunks
// of all ranks of a row.
using optim::Route;

struct PlanParameter {
  std::string name;             // dotted, "model.layers.3.mlp.up_proj.weight"
  std::vector<int64_t> shape;   // of the whole logical tensor
  bool tensor_sharded = false;  // its pieces lie on the ranks of the tensor axis
  Route route = Route::muon;    // only CostModel::route looks at it

  int64_t elements() const;
};

enum class OwnerStrategy {
  lpt,          // the longest first to the least loaded (Graham 1969)
  round_robin,  // in order of registration
  rank0         // all to the first; a baseline to compare with
};

enum class CostModel {
  optimizer,  // Newton-Schulz products, guessed from names and shapes
  numel,      // elements
  route       // the products or the bytes that the real route takes
};

struct PlanOptions {
  OwnerStrategy strategy = OwnerStrategy::lpt;
  CostModel cost_model = CostModel::optimizer;
  bool column_balance = true;        // with two axes: balance the ranks of one shard index first
  bool pack_small = true;            // matrices below kPackedBelow of one layer go to one owner, in one message
  int64_t max_owners_per_group = 0;  // owners that one layer may have; 0: any number
  // Extra cost of each 10^6 bytes that only an owner keeps (gradient, master, state); 0: memory is free.
  int64_t cost_per_megabyte = 0;
  // The layer of a parameter: members of one layer go to different owners while there are any. Default: layer_of().
  std::function<std::optional<std::string>(const PlanParameter&)> group_key{};
};

constexpr int64_t kPackedBelow = 5'000'000;  // elements

// "model.layers.3" for "model.layers.3.mlp.up_proj.weight": the name up to the segment behind the first "layers" or
// "blocks"; "_root.layers.3" when nothing stands before it. Nothing for other names.
std::optional<std::string> layer_of(const std::string& name);

// Cost of one parameter in the units of the model; at least 1. For CostModel::optimizer with r rows, c the product of
// the other dimensions, s = min(r, c), b = max(r, c), n = r c:
//   fewer than two dimensions, or a name of embedding, head, norm or bias:  max(1, n / 10^6)
//   otherwise  max(1, 5 s (r c + 2 b s) / 10^9) + max(1, n / (4 10^6)), in whole numbers
int64_t update_cost(const PlanParameter& parameter, CostModel model);

struct Owner {
  int64_t shard = 0, replicate = 0;
  bool operator==(const Owner&) const = default;
};

struct Assignment {
  int64_t parameter = 0;  // index into the parameters that the plan was made of
  int64_t unit = 0;       // parameters of one unit were assigned together
  Owner owner;
  std::optional<int64_t> tensor_owner;  // of a tensor-sharded parameter: the rank of its tensor group
};

struct OwnershipPlan {
  Mesh mesh;
  std::vector<PlanParameter> parameters;
  std::vector<Assignment> order;  // as they were assigned: the order inside of every message
  int64_t units = 0, packed_units = 0;
  std::vector<int64_t> costs, elements;  // per slot, index shard * mesh.replicate + replicate

  // Where each parameter went, by parameter index.
  const Assignment& of(int64_t parameter) const;
  // Cost of the most loaded slot over the mean; 1 is perfect.
  double imbalance() const;

  // One line per fact, first two words unique: what ranks compare. Equal texts mean equal plans.
  std::string text() const;
  std::string digest() const;  // "crc32c:..." of text()
};

// A pure function: no communication, no clock, the same on every rank.
// Throws Error{usage} for two parameters of one name, negative sizes, limits below 0, or a tensor-sharded parameter
// under a strategy other than lpt.
OwnershipPlan make_ownership_plan(std::vector<PlanParameter> parameters, const Mesh& mesh,
                                  const PlanOptions& options = {});

// What differs between two texts of plans, at most `most` lines for a person; empty when nothing does.
// names: of whom the texts are, "rank 0" and "rank 3".
std::string plan_difference(const std::string& first, const std::string& second, const std::string& first_name,
                            const std::string& second_name, size_t most = 8);

}  // namespace pacer::parallel
