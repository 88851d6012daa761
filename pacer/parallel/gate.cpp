#include "pacer/parallel/gate.h"

#include <map>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/parallel/checkpoint.h"
#include "pacer/parallel/gate_model.h"
#include "pacer/parallel/gate_snapshot.h"

namespace pacer::parallel {
namespace {

constexpr StepRates kRates{.muon = 0.01, .adamw = 1e-3};
constexpr uint64_t kDataSeed = 1000;

// The reference is exact also where the case is not: adding equal leaves one by one would round where a tree does not.
EngineOptions engine_options(const GateCase& c, const Mesh& mesh, Fault fault) {
  EngineOptions options;
  options.mesh = mesh;
  options.reduction = {
      .micro_batches = c.micro_batches, .accumulation = c.accumulation, .exact = c.different_data || mesh.size() == 1};
  options.unshard = c.unshard;
  options.free_weights = c.free_weights;
  options.overlap = c.overlap;
  options.clip = 1.0;
  options.update.muon.batch_matrices = false;  // a case that is not exact has the same bits as the reference, too
  options.fault = fault;
  return options;
}

Snapshot snapshot(Engine& engine, const StepReport& report) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& tensor : engine.state_tensors()) tensors["state " + tensor.name] = engine.whole(tensor);
  for (const auto& [name, steps] : engine.counters()) tensors["updates " + name] = at::full({}, steps, at::kLong);
  for (const auto& [name, weight] : engine.weights()) tensors["weight " + name] = weight;
  tensors["loss"] = at::full({}, report.loss, at::kDouble);
  tensors["norm"] = report.norm;
  return snapshot_of(tensors);
}

// Training of the case on one mesh, from where the engine stands.
class Run {
 public:
  Run(World& world, const GateCase& c, const Mesh& mesh, c10::Device device, Fault fault)
      : case_(c),
        model_(c.half_weights ? at::kBFloat16 : at::kFloat, device),
        engine_(world, model_.parameters(c.half_weights && !c.different_data ? at::kBFloat16 : at::kFloat),
                model_.segments(), model_.calls(), engine_options(c, mesh, fault)) {}

  Engine& engine() { return engine_; }

  Snapshot update() {
    const auto step = static_cast<uint64_t>(engine_.steps());
    const int64_t count = engine_.options().reduction.micro_batches;
    const auto leaves = static_cast<uint64_t>(engine_.options().mesh.data_size() * count);
    for (int64_t k = 0; k < count; ++k) {
      const auto leaf = static_cast<uint64_t>(engine_.groups().data_rank * count + k);
      model_.micro_batch(engine_, kDataSeed + (case_.different_data ? step * leaves + leaf : step));
    }
    const StepReport report = engine_.step(kRates);
    if (!report.clipped.item<bool>()) throw Error(ErrorKind::bug, "the gate's clipping is not active");
    return snapshot(engine_, report);
  }

 private:
  GateCase case_;
  GateModel model_;
  Engine engine_;
};

// What one process computes: all leaves of the step, one after the other.
class References {
 public:
  References(World& world, const GateOptions& options)
      : world_(world), updates_(options.updates), device_(options.device) {}

  // Computes what these cases need; every rank computes some and leaves them for the others.
  void prepare(const std::vector<GateCase>& cases) {
    std::map<std::string, const GateCase*> wanted;
    for (const GateCase& c : cases) {
      if (!known_.contains(key(c))) wanted.emplace(key(c), &c);
    }
    int64_t number = 0;
    for (const auto& [name, c] : wanted) {
      if (number++ % world_.size() != world_.rank()) continue;
      const auto steps = compute(*c);
      for (size_t step = 0; step < steps.size(); ++step) {
        if (world_.size() > 1) {
          world_.set("gate/" + name + "/" + std::to_string(step), to_text(steps[step]));
        } else {
          known_[name] = steps;
        }
      }
    }
    if (world_.size() == 1) return;
    world_.all().barrier("gate references");
    for (const auto& [name, c] : wanted) {
      for (int64_t step = 0; step < updates_; ++step) {
        known_[name].push_back(parse_snapshot(world_.get("gate/" + name + "/" + std::to_string(step))));
      }
    }
  }

  const Snapshot& at(const GateCase& c, size_t step) const { return known_.at(key(c)).at(step); }

 private:
  int64_t leaves(const GateCase& c) const { return world_.size() * c.micro_batches; }
  std::string key(const GateCase& c) const {
    return std::string(c.different_data ? "different" : "identical") + (c.half_weights ? " bf16 " : " f32 ") +
           std::to_string(leaves(c)) + " of " + std::to_string(updates_);
  }
  std::vector<Snapshot> compute(const GateCase& c) const {
    GateCase alone{.mesh = {1, 1}, .micro_batches = leaves(c)};
    alone.different_data = c.different_data;
    alone.half_weights = c.half_weights;
    World one({}, {});
    Run run(one, alone, {1, 1}, device_, Fault::none);
    std::vector<Snapshot> steps;
    for (int64_t step = 0; step < updates_; ++step) steps.push_back(run.update());
    return steps;
  }

  World& world_;
  int64_t updates_;
  c10::Device device_;
  std::map<std::string, std::vector<Snapshot>> known_;
};

// The first difference on this rank, or "". Makes the same collectives on every rank whatever it finds.
std::string check_case(World& world, const GateCase& c, const PlantedFault& planted, const GateOptions& options,
                       const References& references, int64_t number) {
  std::string failure;
  const auto compare = [&](const Snapshot& found, int64_t step, const std::string& where) {
    if (!failure.empty()) return;
    const std::string difference = snapshot_difference(references.at(c, static_cast<size_t>(step)), found);
    if (!difference.empty()) failure = where + " after update " + std::to_string(step + 1) + ": " + difference;
  };
  const std::filesystem::path checkpoint = options.folder / ("case_" + std::to_string(number));
  int64_t begin = 0;
  if (c.restart_from) {
    Run before(world, c, *c.restart_from, options.device, planted.fault);
    for (; begin < options.updates / 2; ++begin) compare(before.update(), begin, "on " + c.restart_from->text());
    save_checkpoint(before.engine(), checkpoint);
  }
  Run run(world, c, c.mesh, options.device, planted.fault);
  if (c.restart_from) {
    load_checkpoint(run.engine(), checkpoint);
    world.all().barrier("gate");
    if (world.rank() == 0) std::filesystem::remove_all(checkpoint);
    if (planted.forget_momentum && world.rank() == 1) {
      for (const auto& tensor : run.engine().state_tensors()) {
        const auto held = run.engine().held(tensor);
        if (held && tensor.kind == Engine::StateTensor::Kind::momentum) held->values.zero_();
      }
    }
  }
  for (int64_t step = begin; step < options.updates; ++step) compare(run.update(), step, "on " + c.mesh.text());
  return failure;
}

GateResult judge(World& world, const std::string& name, bool should_pass, const std::function<std::string()>& check) {
  GateResult result{.name = name, .passed = false, .failure = {}, .seconds = 0};
  const double start = wall_seconds();
  bool fine = false;
  try {
    result.failure = check();
    fine = result.failure.empty();
  } catch (const Error& error) {
    // Raised on every rank alike: disagreement about the plan. Anything else leaves a dead group, and the next
    // collective says so.
    result.failure = error.what();
  }
  bool everywhere = true;
  try {
    world.require_success_everywhere(fine, name);
  } catch (const Error& error) {
    everywhere = false;
    if (result.failure.empty()) result.failure = error.what();
  }
  result.passed = everywhere == should_pass;
  result.seconds = wall_seconds() - start;
  return result;
}

}  // namespace

OrderedJson GateResult::to_json() const {
  return {{"case", name}, {"passed", passed}, {"failure", failure}, {"seconds", seconds}};
}

std::vector<GateResult> run_gate(World& world, const GateOptions& options,
                                 const std::function<void(const GateResult&)>& done) {
  if (options.updates < 2) throw Error(ErrorKind::usage, "the gate needs at least two updates");
  at::set_num_threads(1);
  const auto cases =
      part_of(options.full ? all_cases(world.size()) : covering_cases(world.size()), options.part, options.parts);
  std::vector<GateResult> results;
  const auto add = [&](GateResult result) {
    done(result);
    results.push_back(std::move(result));
  };
  References references(world, options);
  references.prepare(cases);
  int64_t number = 0;
  for (const GateCase& c : cases) {
    add(judge(world, c.name(), true, [&] { return check_case(world, c, {}, options, references, number); }));
    ++number;
  }
  if (!options.faults) return results;
  if (world.size() < 4) {
    throw Error(ErrorKind::usage, "planted faults need four ranks: a mesh of two rows with two ranks each");
  }
  GateOptions few = options;
  few.updates = 4;
  References short_references(world, few);
  for (const PlantedFault& planted : planted_faults()) {
    GateCase c{.mesh = {2, world.size() / 2}, .micro_batches = 2};
    if (planted.forget_momentum) c.restart_from = Mesh{1, world.size()};
    short_references.prepare({c});
    add(judge(world, "found: " + planted.name, false,
              [&] { return check_case(world, c, planted, few, short_references, number); }));
    ++number;
  }
  return results;
}

}  // namespace pacer::parallel
