// Whole tensors of an engine: for checkpoints, for the gate, and for whoever wants to look.
#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/parallel/engine_state.h"

namespace pacer::parallel {
namespace {

using Kind = Engine::StateTensor::Kind;

at::Tensor& tensor_of(HeldPart& part, Kind kind) {
  return kind == Kind::master     ? part.master
         : kind == Kind::momentum ? part.momentum
         : kind == Kind::first    ? part.first
                                  : part.second;
}

}  // namespace

std::vector<Engine::StateTensor> Engine::state_tensors() const {
  std::vector<StateTensor> tensors;
  for (const auto& unit : units_) {
    for (const LayoutParameter& parameter : unit->layout.parameters) {
      const auto add = [&](const char* suffix, Kind kind, at::ScalarType dtype) {
        tensors.push_back({parameter.name + suffix, parameter.name, kind, parameter.shape, dtype, parameter.placement,
                           parameter.owner});
      };
      add("", Kind::master, at::kFloat);
      if (parameter.route == Route::muon) {
        add(".momentum", Kind::momentum, options_.update.muon.momentum_dtype);
      } else {
        add(".exp_avg", Kind::first, at::kFloat);
        add(".exp_avg_sq", Kind::second, at::kFloat);
      }
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return tensors;
}

Engine::UnitState& Engine::unit_of(const StateTensor& tensor, size_t& place) {
  for (const auto& unit : units_) {
    for (place = 0; place < unit->layout.parameters.size(); ++place) {
      if (unit->layout.parameters[place].name == tensor.parameter) return *unit;
    }
  }
  throw Error(ErrorKind::bug, "the engine has no parameter '" + tensor.parameter + "'");
}

std::optional<Engine::HeldRun> Engine::held(const StateTensor& tensor) {
  size_t place = 0;
  UnitState& unit = unit_of(tensor, place);
  for (HeldPart& part : unit.update.parts()) {
    if (part.parameter == place) return HeldRun{part.begin, tensor_of(part, tensor.kind).view({-1})};
  }
  return std::nullopt;
}

at::Tensor Engine::whole(const StateTensor& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  const auto run = held(tensor);
  at::Tensor flat = at::empty({elements}, at::TensorOptions().dtype(tensor.dtype).device(device_));
  switch (tensor.placement) {
    case Placement::replicated:
      flat.copy_(run->values);
      break;
    case Placement::owner:
      if (run) flat.copy_(run->values);
      groups_.world.all()
          .broadcast(flat, groups_.mesh.rank({tensor.owner.replicate, tensor.owner.shard, 0}), "whole tensors")
          .wait();
      break;
    case Placement::sharded: {
      const int64_t each = chunk_elements(elements, groups_.mesh.shard);
      at::Tensor mine = at::zeros({each}, flat.options()), all = at::empty({each * groups_.mesh.shard}, flat.options());
      mine.narrow(0, 0, run->values.numel()).copy_(run->values);
      groups_.row->all_gather(all, mine, "whole tensors").wait();
      flat.copy_(all.narrow(0, 0, elements));
      break;
    }
  }
  return flat.view(tensor.shape);
}

std::map<std::string, int64_t> Engine::counters() {
  // Each counter comes from one rank: the owner, else the first.
  at::Tensor values = at::zeros({counts_.numel() - 1}, at::kLong);
  std::vector<std::string> names(static_cast<size_t>(values.numel()));
  for (const auto& unit : units_) {
    for (size_t place = 0; place < unit->indices.size(); ++place) {
      names[unit->indices[place]] = unit->layout.parameters[place].name;
    }
    for (const HeldPart& part : unit->update.parts()) {
      const bool owned = unit->layout.parameters[part.parameter].placement == Placement::owner;
      if (owned || groups_.data_rank == 0) values[static_cast<int64_t>(unit->indices[part.parameter])] = part.steps;
    }
  }
  groups_.world.all().sum(values, "counters").wait();
  std::map<std::string, int64_t> counters;
  for (size_t i = 0; i < names.size(); ++i) counters[names[i]] = values[static_cast<int64_t>(i)].item<int64_t>();
  return counters;
}

void Engine::set_counters(const std::map<std::string, int64_t>& counters) {
  for (const auto& unit : units_) {
    for (HeldPart& part : unit->update.parts()) {
      const std::string& name = unit->layout.parameters[part.parameter].name;
      const auto found = counters.find(name);
      if (found == counters.end()) throw Error(ErrorKind::format, "the counter of '" + name + "' is missing");
      part.steps = found->second;
    }
  }
}

void Engine::publish_all() {
  for (const auto& unit : units_) {
    if (options_.free_weights) unit->weights.release();
    publish(*unit, false);
  }
}

void Engine::settle() {
  for (const auto& unit : units_) unit->weights.finish_publish();
}

std::map<std::string, at::Tensor> Engine::weights() {
  std::map<std::string, at::Tensor> weights;
  for (const auto& unit : units_) {
    unit->weights.start_acquire();
    unit->weights.wait_acquire();
    for (size_t place = 0; place < unit->indices.size(); ++place) {
      weights[unit->layout.parameters[place].name] = unit->weights.live(place).detach().clone();
    }
    unit->weights.release();
  }
  return weights;
}

}  // namespace pacer::parallel
