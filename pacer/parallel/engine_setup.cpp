#include <algorithm>
#include <map>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/formats/manifest.h"
#include "pacer/parallel/engine_state.h"

namespace pacer::parallel {
namespace {

PlanParameter plan_parameter(const EngineParameter& parameter) {
  return {parameter.name, parameter.weight.sizes().vec(), false, parameter.route};
}

Placement placement_of(const EngineParameter& parameter) {
  if (parameter.replicated) return Placement::replicated;
  return parameter.route == Route::sharded_adamw ? Placement::sharded : Placement::owner;
}

void check(const std::vector<EngineParameter>& parameters, const EngineOptions& options) {
  if (parameters.empty()) throw Error(ErrorKind::usage, "a training without parameters");
  for (const EngineParameter& parameter : parameters) {
    const at::Tensor& weight = parameter.weight;
    if (!weight.defined() || !weight.is_leaf() || !weight.requires_grad() ||
        !at::isFloatingType(weight.scalar_type())) {
      throw Error(ErrorKind::usage, "the weight " + parameter.name + " is no leaf that requires a gradient",
                  "leave frozen tensors out of the parameters");
    }
    if (weight.device() != parameters.front().weight.device()) {
      throw Error(ErrorKind::usage, "the weight " + parameter.name + " lies on " + weight.device().str() +
                                        ", others on " + parameters.front().weight.device().str());
    }
    if (parameter.replicated && parameter.route != Route::adamw) {
      throw Error(
          ErrorKind::usage,
          std::string("the replicated parameter ") + parameter.name + " takes the route " + name_of(parameter.route),
          "replicated parameters are updated by adamw");
    }
    if (parameter.initial.defined() && parameter.initial.sizes() != weight.sizes()) {
      throw Error(ErrorKind::usage, "the initial values of " + parameter.name + " have another shape");
    }
  }
  if (options.reduction.micro_batches < 1) {
    throw Error(ErrorKind::usage, "a step has " + std::to_string(options.reduction.micro_batches) + " micro-batches");
  }
  if (options.reduction.exact && at::get_num_threads() != 1) {
    throw Error(ErrorKind::usage,
                "exact mode with " + std::to_string(at::get_num_threads()) +
                    " threads inside of "
                    "operators, whose sums may depend on them",
                "set OMP_NUM_THREADS=1");
  }
}

OwnershipPlan plan_of(const std::vector<EngineParameter>& parameters, const EngineOptions& options) {
  std::vector<PlanParameter> owned;
  for (const EngineParameter& parameter : parameters) {
    if (placement_of(parameter) == Placement::owner) owned.push_back(plan_parameter(parameter));
  }
  return make_ownership_plan(std::move(owned), options.mesh, options.plan);
}

}  // namespace

Engine::Engine(World& world, std::vector<EngineParameter> parameters, std::vector<Segment> segments,
               std::vector<size_t> calls, const EngineOptions& options)
    : options_(options),
      groups_(world, options.mesh),
      device_(device::host_device()),
      segments_(std::move(segments)),
      calls_(std::move(calls)),
      tape_(std::make_unique<Tape>()) {
  check(parameters, options_);
  device_ = parameters.front().weight.device();
  // A batch of matrices may round differently than each by itself, and who owns which depends on the mesh.
  if (options_.reduction.exact) options_.update.muon.batch_matrices = false;
  plan_ = plan_of(parameters, options_);
  if (options_.fault == Fault::other_owner && world.rank() == 1) {
    Owner& owner = plan_.order.front().owner;
    owner.shard = (owner.shard + 1) % options_.mesh.shard;
    if (options_.mesh.shard == 1) owner.replicate = (owner.replicate + 1) % options_.mesh.replicate;
  }
  share_initial_values(parameters);
  make_units(parameters, segments_);
  groups_.world.require_same(text(), "the plan of the training");
  counts_ = at::zeros({1 + static_cast<int64_t>(parameters.size())}, at::kLong);
  losses_ = at::zeros({groups_.mesh.data_size() * options_.reduction.micro_batches}, at::kDouble);
  tape_->records.resize(calls_.size());
}

Engine::~Engine() = default;

void Engine::share_initial_values(std::vector<EngineParameter>& parameters) {
  for (EngineParameter& parameter : parameters) {
    at::Tensor values = (parameter.initial.defined() ? parameter.initial : parameter.weight).detach();
    values = values.to(device_, at::kFloat).contiguous().clone();
    groups_.world.all().broadcast(values, 0, "initial values").wait();
    parameter.weight.variable_data().copy_(values);
    parameter.initial = std::move(values);
  }
}

void Engine::make_units(const std::vector<EngineParameter>& parameters, const std::vector<Segment>& segments) {
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!index.emplace(parameters[i].name, i).second) {
      throw Error(ErrorKind::usage, "two parameters are named '" + parameters[i].name + "'");
    }
  }
  std::map<std::string, Owner> owners;
  std::vector<size_t> order;  // owned ones as the plan assigned them, then the others as they come
  for (const Assignment& assignment : plan_.order) {
    const std::string& name = plan_.parameters[static_cast<size_t>(assignment.parameter)].name;
    owners[name] = assignment.owner;
    order.push_back(index.at(name));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!owners.contains(parameters[i].name)) order.push_back(i);
  }
  // Units stand as the parameters that they hold come first.
  std::vector<std::pair<std::string, std::vector<size_t>>> members;
  const auto key_of = [&](const EngineParameter& parameter) {
    std::string key = !parameter.unit.empty() ? parameter.unit : layer_of(parameter.name).value_or(parameter.name);
    key += std::string("/") + c10::toString(parameter.weight.scalar_type());
    if (!options_.reduction.exact) key += std::string("/") + c10::toString(parameter.message_dtype);
    return key;
  };
  std::map<std::string, size_t> unit_of_key;
  for (const EngineParameter& parameter : parameters) {
    if (unit_of_key.emplace(key_of(parameter), members.size()).second) members.push_back({key_of(parameter), {}});
  }
  std::vector<size_t> unit_of(parameters.size());
  for (const size_t i : order) {
    unit_of[i] = unit_of_key.at(key_of(parameters[i]));
    members[unit_of[i]].second.push_back(i);
  }
  for (const auto& [name, indices] : members) {
    std::vector<LayoutParameter> layout;
    std::vector<at::Tensor> live, initial;
    for (const size_t i : indices) {
      const EngineParameter& parameter = parameters[i];
      const auto owner = owners.find(parameter.name);
      layout.push_back({parameter.name, parameter.weight.sizes().vec(), parameter.route, placement_of(parameter),
                        owner == owners.end() ? Owner{} : owner->second, parameter.weight.scalar_type(),
                        options_.reduction.exact ? at::kFloat : parameter.message_dtype, parameter.rate,
                        parameter.weight_decay, parameter.matrices});
      live.push_back(parameter.weight);
      initial.push_back(parameter.initial);
    }
    auto unit = std::make_unique<UnitState>(make_unit_layout(name, std::move(layout), options_.mesh), groups_, options_,
                                            live, initial, indices);
    for (size_t place = 0; place < indices.size(); ++place) {
      unit->first_block.push_back(blocks_);
      blocks_ += (unit->layout.parameters[place].elements() + kBlock - 1) / kBlock;
    }
    // Every rank has the initial values: nothing needs to be published.
    for (const Piece& piece : unit->layout.shards[static_cast<size_t>(groups_.at.shard)].pieces) {
      const Placement placement = unit->layout.parameters[piece.parameter].placement;
      const at::Tensor values = initial[piece.parameter].view({-1}).narrow(0, piece.begin, piece.count);
      if (placement == Placement::owner) unit->weights.owned(piece.parameter).copy_(values);
      if (placement == Placement::sharded) unit->weights.chunk(piece.parameter).copy_(values);
    }
    unit->weights.release();
    units_.push_back(std::move(unit));
  }

  ScheduleInput input{
      .calls = {}, .units = units_.size(), .free_weights = options_.free_weights, .prefetch = options_.overlap};
  for (const size_t call : calls_) {
    if (call >= segments.size()) throw Error(ErrorKind::usage, "a call names segment " + std::to_string(call));
    std::vector<size_t> units;
    for (const std::string& name : segments[call].parameters) {
      const auto found = index.find(name);
      if (found == index.end()) {
        throw Error(ErrorKind::usage,
                    "segment " + segments[call].name + " reads '" + name + "', which is no parameter");
      }
      units.push_back(unit_of[found->second]);
    }
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    input.calls.push_back(std::move(units));
  }
  schedule_ = make_schedule(input);
}

std::string Engine::text() const {
  std::vector<UnitLayout> layouts;
  for (const auto& unit : units_) layouts.push_back(unit->layout);
  const auto option = [](const char* name, const std::string& value) {
    return std::string("option ") + name + " " + value + "\n";
  };
  const ReductionOptions& reduction = options_.reduction;
  return plan_.text() + layout_text(layouts) + schedule_.text() + option("mesh", options_.mesh.text()) +
         option("exact", reduction.exact ? "yes" : "no") +
         option("threads", reduction.exact ? std::to_string(at::get_num_threads()) : "any") +
         option("micro-batches", std::to_string(reduction.micro_batches)) +
         option("accumulation", name_of(reduction.accumulation)) + option("unshard", name_of(options_.unshard)) +
         option("free-weights", options_.free_weights ? "yes" : "no") + option("clip", std::to_string(options_.clip));
}

std::string Engine::digest() const { return formats::fingerprint(text()); }

}  // namespace pacer::parallel
