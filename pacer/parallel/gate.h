// The correctness gate: the same training on every mesh gives the same bits, and a gate that would not notice is proven
// not to be this one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/device/kernels.h"
#include "pacer/parallel/engine.h"

namespace pacer::parallel {

struct GateCase {
  Mesh mesh;
  int64_t micro_batches = 1;
  Accumulation accumulation = Accumulation::reduce_each;
  // false: every leaf of a step has the same data and the fast mode is used; true: every leaf has its own, exact mode.
  bool different_data = true;
  bool half_weights = false;  // bf16 weights, and bf16 messages where the mode allows
  bool free_weights = false;
  Unshard unshard = Unshard::broadcast;
  bool overlap = true;
  // Half of the updates run on another mesh, which leaves a checkpoint that this one goes on from.
  std::optional<Mesh> restart_from{};

  std::string name() const;
};

// At most 12 cases in which every two settings of different kinds meet once, for four ranks; fewer for fewer ranks.
std::vector<GateCase> covering_cases(int64_t world);
// The product of all settings; of the forms of accumulation one where there is a single micro-batch.
std::vector<GateCase> all_cases(int64_t world);

// Every `parts`-th case, from the `part`-th on: together the parts are all cases. 1 <= part <= parts.
std::vector<GateCase> part_of(const std::vector<GateCase>& cases, int64_t part, int64_t parts);

// The mistakes that the gate is shown, one run each.
struct PlantedFault {
  std::string name;
  Fault fault = Fault::none;
  bool forget_momentum = false;  // on one rank the momentum is not restored
};
std::vector<PlantedFault> planted_faults();

struct GateOptions {
  int64_t updates = 10;
  bool full = false;                           // all_cases() instead of covering_cases()
  int64_t part = 1, parts = 1;                 // only some of them (part_of): machines or days share the work
  bool faults = false;                         // also every planted fault, which must be found
  std::filesystem::path folder;                // for checkpoints; all ranks reach it
  c10::Device device = device::host_device();  // of this rank, bound before the ranks met
};

struct GateResult {
  std::string name;
  bool passed = false;
  std::string failure;  // the first difference that this rank saw, "" when another rank saw it
  double seconds = 0;
  OrderedJson to_json() const;
};

// Per case and after each update, on every rank, bit for bit: the loss, the norm, every master, state and counter, and
// every weight that the forward reads, against one process with all leaves as micro-batches. A case passes when it
// passes on all ranks; a planted fault passes when it is found. `done` is called after each one.
// Muon: momentum 0.95, nesterov, decay 0.1, rate 0.01; AdamW: rate 1e-3, betas 0.9 and 0.999, decay 0.01; clip 1.
std::vector<GateResult> run_gate(World& world, const GateOptions& options,
                                 const std::function<void(const GateResult&)>& done);

}  // namespace pacer::parallel
