#include "pacer/parallel/ownership_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "pacer/base/error.h"
#include "pacer/formats/manifest.h"

namespace pacer::parallel {
namespace {

struct Unit {
  std::vector<int64_t> members;  // parameter indices, in order of registration
  std::string group;             // "" for the parameters that belong to no layer: together they are one
  std::string names;             // joined, the last tie-break
  int64_t cost = 0, elements = 0;
};

int64_t cost_of(const PlanParameter& parameter, const PlanOptions& options) {
  // f32 gradient, master and momentum; AdamW has a second moment.
  const int64_t bytes = parameter.elements() * (parameter.route == Route::muon ? 12 : 16);
  return update_cost(parameter, options.cost_model) + options.cost_per_megabyte * (bytes / 1'000'000);
}

void check(const std::vector<PlanParameter>& parameters, const Mesh& mesh, const PlanOptions& options) {
  if (options.max_owners_per_group < 0) {
    throw Error(ErrorKind::usage, "max_owners_per_group is " + std::to_string(options.max_owners_per_group),
                "a number of owners, or 0 for any number");
  }
  if (options.cost_per_megabyte < 0) throw Error(ErrorKind::usage, "cost_per_megabyte is negative");
  std::set<std::string> names;
  for (const PlanParameter& parameter : parameters) {
    if (!names.insert(parameter.name).second) {
      throw Error(ErrorKind::usage, "two parameters are named '" + parameter.name + "'");
    }
    if (std::any_of(parameter.shape.begin(), parameter.shape.end(), [](int64_t size) { return size < 0; })) {
      throw Error(ErrorKind::usage, "'" + parameter.name + "' has a negative size");
    }
    if (parameter.tensor_sharded && options.strategy != OwnerStrategy::lpt) {
      throw Error(ErrorKind::usage, "'" + parameter.name + "' is tensor-sharded: its owners need the strategy lpt",
                  "the others would let one rank orthogonalise everything");
    }
  }
  if (mesh.replicate < 1 || mesh.shard < 1 || mesh.tensor < 1) {
    throw Error(ErrorKind::usage, "the mesh " + mesh.text() + " has an axis without ranks");
  }
}

std::vector<Unit> make_units(const std::vector<PlanParameter>& parameters, const PlanOptions& options) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> groups;  // as first seen
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto key = options.group_key ? options.group_key(parameters[i]) : layer_of(parameters[i].name);
    const std::string group = key.value_or("");
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& entry) { return entry.first == group; });
    if (found == groups.end()) found = groups.insert(groups.end(), {group, {}});
    found->second.push_back(static_cast<int64_t>(i));
  }
  std::vector<Unit> units;
  const auto add = [&](Unit& unit, int64_t index) {
    const PlanParameter& parameter = parameters[static_cast<size_t>(index)];
    unit.names += (unit.members.empty() ? "" : ",") + parameter.name;
    unit.members.push_back(index);
    unit.cost += cost_of(parameter, options);
    unit.elements += parameter.elements();
  };
  for (const auto& [group, members] : groups) {
    Unit packed{.members = {}, .group = group, .names = {}};
    // Tensor-sharded ones first, then the large ones, then what is packed; without packing as they come.
    for (const int pass : {0, 1}) {
      for (const int64_t index : members) {
        const PlanParameter& parameter = parameters[static_cast<size_t>(index)];
        if (options.pack_small && parameter.tensor_sharded != (pass == 0)) continue;
        if (!options.pack_small && pass == 1) continue;
        if (options.pack_small && !parameter.tensor_sharded && parameter.elements() < kPackedBelow) {
          add(packed, index);
          continue;
        }
        Unit unit{.members = {}, .group = group, .names = {}};
        add(unit, index);
        units.push_back(std::move(unit));
      }
    }
    if (!packed.members.empty()) units.push_back(std::move(packed));
  }
  const auto first = [](const Unit& unit) { return *std::min_element(unit.members.begin(), unit.members.end()); };
  std::sort(units.begin(), units.end(), [&](const Unit& a, const Unit& b) {
    if (options.strategy != OwnerStrategy::lpt) return first(a) < first(b);
    return std::tie(b.cost, b.elements, a.group, a.names) < std::tie(a.cost, a.elements, b.group, b.names);
  });
  return units;
}

// Loads of the slots (shard-major) and of the columns that share a shard index.
struct Loads {
  std::vector<int64_t> cost, elements, column_cost, column_elements;
};

int64_t choose_slot(const std::set<int64_t>& used, const Loads& loads, const Mesh& mesh, const PlanOptions& options,
                    int64_t& turn) {
  std::vector<int64_t> candidates;
  const bool capped =
      options.max_owners_per_group > 0 && static_cast<int64_t>(used.size()) >= options.max_owners_per_group;
  for (int64_t slot = 0; slot < mesh.data_size(); ++slot) {
    if (!capped || used.contains(slot)) candidates.push_back(slot);
  }
  if (options.strategy == OwnerStrategy::rank0) return 0;
  if (options.strategy == OwnerStrategy::round_robin) {
    return candidates[static_cast<size_t>(turn++) % candidates.size()];
  }
  const bool columns = options.column_balance && mesh.replicate > 1;
  const auto key = [&](int64_t slot) {
    const auto s = static_cast<size_t>(slot), column = static_cast<size_t>(slot / mesh.replicate);
    return std::tuple(used.contains(slot), columns ? loads.column_cost[column] : 0, loads.cost[s],
                      columns ? loads.column_elements[column] : 0, loads.elements[s]);
  };
  return *std::min_element(candidates.begin(), candidates.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
}

// Inside of one owner's parameters: the largest first to the least loaded rank of the tensor group. Owners begin at
// different ranks, so that equal loads do not all fall on the first.
void assign_tensor_owners(OwnershipPlan& plan, const PlanOptions& options) {
  std::map<int64_t, std::vector<Assignment*>> buckets;
  for (Assignment& assignment : plan.order) {
    if (!plan.parameters[static_cast<size_t>(assignment.parameter)].tensor_sharded) continue;
    buckets[assignment.owner.shard * plan.mesh.replicate + assignment.owner.replicate].push_back(&assignment);
  }
  for (auto& [slot, bucket] : buckets) {
    const int64_t offset = slot % plan.mesh.tensor;
    const auto parameter = [&](const Assignment* a) -> const PlanParameter& {
      return plan.parameters[static_cast<size_t>(a->parameter)];
    };
    std::sort(bucket.begin(), bucket.end(), [&](const Assignment* a, const Assignment* b) {
      return std::tuple(-cost_of(parameter(a), options), -parameter(a).elements(), parameter(a).name) <
             std::tuple(-cost_of(parameter(b), options), -parameter(b).elements(), parameter(b).name);
    });
    std::vector<int64_t> cost(static_cast<size_t>(plan.mesh.tensor)), elements(cost.size());
    for (Assignment* assignment : bucket) {
      size_t best = 0;
      const auto key = [&](size_t rank) {
        const int64_t distance = (static_cast<int64_t>(rank) - offset + plan.mesh.tensor) % plan.mesh.tensor;
        return std::tuple(cost[rank], elements[rank], distance);
      };
      for (size_t rank = 1; rank < cost.size(); ++rank) best = key(rank) < key(best) ? rank : best;
      assignment->tensor_owner = static_cast<int64_t>(best);
      cost[best] += cost_of(parameter(assignment), options);
      elements[best] += parameter(assignment).elements();
    }
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + "]";
}

// The lines of a plan by their first two words.
std::map<std::string, std::string> facts(const std::string& text) {
  std::map<std::string, std::string> facts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ', line.find(' ') + 1);
    facts[line.substr(0, space)] = space == std::string::npos ? std::string() : line.substr(space + 1);
  }
  return facts;
}

}  // namespace

OwnershipPlan make_ownership_plan(std::vector<PlanParameter> parameters, const Mesh& mesh, const PlanOptions& options) {
  check(parameters, mesh, options);
  OwnershipPlan plan;
  plan.mesh = mesh;
  plan.parameters = std::move(parameters);
  const auto slots = static_cast<size_t>(mesh.data_size()), columns = static_cast<size_t>(mesh.shard);
  Loads loads{std::vector<int64_t>(slots), std::vector<int64_t>(slots), std::vector<int64_t>(columns),
              std::vector<int64_t>(columns)};
  std::map<std::string, std::set<int64_t>> used;
  int64_t turn = 0;
  for (const Unit& unit : make_units(plan.parameters, options)) {
    const int64_t slot = choose_slot(used[unit.group], loads, mesh, options, turn);
    const auto s = static_cast<size_t>(slot), column = static_cast<size_t>(slot / mesh.replicate);
    for (const int64_t member : unit.members) {
      plan.order.push_back({member, plan.units, {slot / mesh.replicate, slot % mesh.replicate}, std::nullopt});
    }
    loads.cost[s] += unit.cost, loads.elements[s] += unit.elements;
    loads.column_cost[column] += unit.cost, loads.column_elements[column] += unit.elements;
    used[unit.group].insert(slot);
    ++plan.units;
    plan.packed_units += unit.members.size() > 1;
  }
  plan.costs = loads.cost;
  plan.elements = loads.elements;
  assign_tensor_owners(plan, options);
  return plan;
}

const Assignment& OwnershipPlan::of(int64_t parameter) const {
  const auto found =
      std::find_if(order.begin(), order.end(), [&](const Assignment& a) { return a.parameter == parameter; });
  if (found == order.end()) {
    throw Error(ErrorKind::bug, "the plan has no parameter " + std::to_string(parameter));
  }
  return *found;
}

double OwnershipPlan::imbalance() const {
  int64_t most = 0, sum = 0;
  for (const int64_t cost : costs) most = std::max(most, cost), sum += cost;
  return sum == 0 ? 1.0 : static_cast<double>(most) * static_cast<double>(costs.size()) / static_cast<double>(sum);
}

std::string OwnershipPlan::text() const {
  std::string text = "plan mesh " + mesh.text() + "\nplan parameters " + std::to_string(order.size()) + "\n";
  for (size_t i = 0; i < order.size(); ++i) {
    const Assignment& assignment = order[i];
    const PlanParameter& parameter = parameters[static_cast<size_t>(assignment.parameter)];
    text += "parameter " + parameter.name + " " + shape_text(parameter.shape) + " " + optim::name_of(parameter.route) +
            ", owner (shard " + std::to_string(assignment.owner.shard) + ", replicate " +
            std::to_string(assignment.owner.replicate) + ")";
    if (assignment.tensor_owner) text += " tensor " + std::to_string(*assignment.tensor_owner);
    text += ", place " + std::to_string(i) + ", unit " + std::to_string(assignment.unit) + "\n";
  }
  return text;
}

std::string OwnershipPlan::digest() const { return formats::fingerprint(text()); }

std::string plan_difference(const std::string& first, const std::string& second, const std::string& first_name,
                            const std::string& second_name, size_t most) {
  const auto a = facts(first), b = facts(second);
  std::set<std::string> keys;
  for (const auto& [key, value] : a) keys.insert(key);
  for (const auto& [key, value] : b) keys.insert(key);
  const auto said = [](const std::map<std::string, std::string>& facts, const std::string& key) {
    const auto found = facts.find(key);
    return found == facts.end() ? std::string("nothing") : found->second;
  };
  std::string text;
  size_t count = 0;
  for (const std::string& key : keys) {
    if (said(a, key) == said(b, key)) continue;
    if (++count <= most) {
      text += key + ": " + first_name + " has " + said(a, key) + "; " + second_name + " has " + said(b, key) + "\n";
    }
  }
  if (count > most) text += "and " + std::to_string(count - most) + " more\n";
  return text;
}

}  // namespace pacer::parallel
