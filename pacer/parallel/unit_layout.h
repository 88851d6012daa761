// Which bytes of a gradient go to which rank: the parameters of one unit, cut and ordered once for all messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "pacer/parallel/ownership_plan.h"

namespace pacer::parallel {

// Where a parameter lives between steps.
enum class Placement {
  owner,      // master and state on one rank
  sharded,    // on every rank of a row a flat chunk of master and state; the rows hold the same
  replicated  // whole master and state on every rank
};

const char* name_of(Placement placement);

// Chunks of sharded parameters, and blocks of the norm, begin at multiples of this many elements.
constexpr int64_t kBlock = 1024;  // optim::block_square_sums counts in the same ones

struct LayoutParameter {
  std::string name;
  std::vector<int64_t> shape;
  Route route = Route::muon;
  Placement placement = Placement::owner;
  Owner owner;                                // of Placement::owner
  at::ScalarType weight_dtype = at::kFloat;   // that the forward computes with, and of messages that carry weights
  at::ScalarType message_dtype = at::kFloat;  // of messages that carry gradients
  double rate = 1;                            // factor on the learning rate
  std::optional<double> weight_decay{};       // in place of the route's
  optim::MatrixLayout matrices{};             // of route muon

  int64_t elements() const;
};

// Flat elements begin .. begin + count - 1 of a parameter at `offset` of the part that they lie in.
struct Piece {
  size_t parameter = 0;  // index into the unit's parameters
  int64_t begin = 0, count = 0, offset = 0;
};

// What the ranks of one shard index reduce together: first what the owners of replicate index 0, 1, ... hold, then what
// every row keeps (chunks of sharded and replicated parameters).
struct ShardPart {
  std::vector<Piece> pieces;
  std::vector<int64_t> owner_counts;  // [replicate] elements of each owner
  int64_t common_count = 0;           // elements that every row keeps

  int64_t owner_total() const;
  int64_t total() const { return owner_total() + common_count; }
  int64_t owner_offset(int64_t replicate) const;
};

struct UnitLayout {
  std::string name;
  std::vector<LayoutParameter> parameters;  // in the order of the plan
  std::vector<ShardPart> shards;            // [shard]; a gradient message is their concatenation

  int64_t total() const;
  int64_t offset(int64_t shard) const;
  at::ScalarType message_dtype() const { return parameters.front().message_dtype; }
  at::ScalarType weight_dtype() const { return parameters.front().weight_dtype; }
};

// Elements of the chunk of each rank of a row but the last ones, which may be short or empty.
int64_t chunk_elements(int64_t elements, int64_t shards);

// parameters: of one unit, all with the same dtypes of messages; throws Error{bug} otherwise.
UnitLayout make_unit_layout(std::string name, std::vector<LayoutParameter> parameters, const Mesh& mesh);

// One line per fact, as OwnershipPlan::text().
std::string layout_text(const std::vector<UnitLayout>& units);

}  // namespace pacer::parallel
