#include "pacer/parallel/prediction.h"

#include <algorithm>

#include "pacer/parallel/unit_layout.h"

namespace pacer::parallel {
namespace {

std::string unit_of(const PlanParameter& parameter) { return layer_of(parameter.name).value_or(parameter.name); }

std::vector<UnitLayout> layouts_of(const PredictionInput& input, const OwnershipPlan& plan) {
  std::map<std::string, Owner> owners;
  for (const Assignment& assignment : plan.order) {
    owners[plan.parameters[static_cast<size_t>(assignment.parameter)].name] = assignment.owner;
  }
  std::vector<std::pair<std::string, std::vector<LayoutParameter>>> units;
  for (const PlanParameter& parameter : input.parameters) {
    const std::string name = unit_of(parameter);
    auto found = std::find_if(units.begin(), units.end(), [&](const auto& unit) { return unit.first == name; });
    if (found == units.end()) found = units.insert(units.end(), {name, {}});
    const bool sharded = parameter.route == Route::sharded_adamw;
    found->second.push_back({parameter.name, parameter.shape, parameter.route,
                             sharded ? Placement::sharded : Placement::owner,
                             sharded ? Owner{} : owners.at(parameter.name), input.weight_dtype,
                             input.reduction.exact ? at::kFloat : input.message_dtype});
  }
  std::vector<UnitLayout> layouts;
  for (auto& [name, parameters] : units) layouts.push_back(make_unit_layout(name, std::move(parameters), input.mesh));
  return layouts;
}

// How often the weights of each unit are acquired in a step.
std::vector<int64_t> acquisitions(const PredictionInput& input) {
  const ScheduleInput schedule = planned_schedule(input).input;
  std::vector<int64_t> times(schedule.units, 0);
  const Schedule made = make_schedule(schedule);
  for (const auto* direction : {&made.forward, &made.backward}) {
    for (const auto& entries : *direction) {
      for (const ScheduleEntry& entry : entries) times[entry.index] += entry.action == Action::start_acquire;
    }
  }
  for (int64_t& count : times)
    count = input.free_weights ? count * input.reduction.micro_batches : std::min<int64_t>(count, 1);
  return times;
}

class Counter {
 public:
  Counter(const PredictionInput& input, Prediction& out) : input_(input), out_(out) {}

  void unit(const UnitLayout& unit, int64_t acquired) {
    const auto shards = static_cast<double>(input_.mesh.shard), rows = static_cast<double>(input_.mesh.replicate);
    const auto weight = static_cast<double>(c10::elementSize(input_.weight_dtype));
    const auto message = static_cast<double>(c10::elementSize(unit.message_dtype()));
    const double row = (shards - 1) / shards, column = (rows - 1) / rows;
    const ReductionOptions& reduction = input_.reduction;
    const bool once = reduction.accumulation == Accumulation::no_sync;
    const int64_t sends = once ? 1 : reduction.micro_batches;
    const bool gated = once || reduction.accumulation == Accumulation::replicate_gate;
    const auto total = static_cast<double>(unit.total());
    if (input_.mesh.shard > 1) add("reduce in the row/exchange", total * message * row, sends);
    if (input_.mesh.replicate > 1) {
      // In exact mode every leaf of a row goes over the rows by itself; sums are f32.
      const double parts = reduction.exact && !gated && reduction.micro_batches > 1 ? shards : 1;
      add("reduce over the rows/exchange", parts * total / shards * 4 * column, gated ? 1 : sends);
    }
    double owned = 0, scattered = 0;
    int64_t publishers = 0, holders = 0;
    for (const ShardPart& part : unit.shards) {
      owned += static_cast<double>(part.owner_total());
      const int64_t each = (part.owner_total() + input_.mesh.shard - 1) / input_.mesh.shard;
      scattered += static_cast<double>(each);
      holders += part.owner_total() > 0;
      for (const int64_t count : part.owner_counts) publishers += count > 0;
      if (input_.mesh.replicate > 1 && part.common_count > 0) {
        const int64_t each = (part.common_count + input_.mesh.replicate - 1) / input_.mesh.replicate;
        add("gather over the rows/all_gather", static_cast<double>(each) * rows * 4 * column / shards, 1);
      }
    }
    if (input_.mesh.replicate > 1 && publishers > 0) {
      add("publish over the rows/broadcast", owned / shards * weight * column, 1);
    }
    double chunks = 0;
    for (const LayoutParameter& parameter : unit.parameters) {
      if (parameter.placement == Placement::sharded) {
        chunks += static_cast<double>(chunk_elements(parameter.elements(), input_.mesh.shard));
      }
    }
    if (input_.mesh.shard == 1) return;
    if (chunks > 0) add("acquire/all_gather", chunks * shards * weight * row, acquired);
    if (owned == 0) return;
    if (input_.unshard == Unshard::broadcast) {
      add("acquire/broadcast", owned * weight * row, acquired, holders);
    } else {
      add("acquire/all_gather", scattered * shards * weight * row, acquired);
      add("scatter in the row/exchange", scattered * weight * row, 1);
    }
  }

  void world(int64_t blocks) {
    const auto ranks = static_cast<double>(input_.mesh.size());
    if (ranks == 1) return;
    const double share = 2 * (ranks - 1) / ranks;
    add("norm/all_reduce", share * 4 * static_cast<double>(blocks), 1);
    add("counts/all_reduce", share * 8 * static_cast<double>(1 + input_.parameters.size()), 1);
    add("losses/all_reduce", share * 8 * ranks * static_cast<double>(input_.reduction.micro_batches), 1);
  }

 private:
  void add(const std::string& name, double bytes, int64_t times, int64_t messages = 1) {
    out_.bytes[name] += bytes * static_cast<double>(times);
    out_.calls[name] += times * messages;
  }

  const PredictionInput& input_;
  Prediction& out_;
};

// Bytes that a rank moves through its memory beside computing and updating, mean over the ranks.
double copied_bytes(const PredictionInput& input, const std::vector<UnitLayout>& units,
                    const std::vector<int64_t>& acquired) {
  const auto shards = static_cast<double>(input.mesh.shard), rows = static_cast<double>(input.mesh.replicate);
  const auto weight = static_cast<double>(c10::elementSize(input.weight_dtype));
  const auto micro_batches = static_cast<double>(input.reduction.micro_batches);
  const double sends = input.reduction.accumulation == Accumulation::no_sync ? 1 : micro_batches;
  double bytes = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto total = static_cast<double>(units[i].total());
    const auto message = static_cast<double>(c10::elementSize(units[i].message_dtype()));
    const double add = 12, own = total / shards, kept = own / rows;
    bytes += micro_batches * (4 + message) * total + (micro_batches - sends) * add * total;  // packed, added here
    bytes += sends * (shards - 1) * add * own;                                               // parts of the row
    if (rows > 1) bytes += sends * (2 * 4 * own + (rows - 1) * add * kept);                  // ordered, parts of rows
    bytes += (8 + 4 + 8) * kept;   // times 1 / N, squares, times the clip coefficient
    bytes += (4 + weight) * kept;  // into the message that publishes
    bytes += 2 * weight * total * static_cast<double>(std::max<int64_t>(1, acquired[i]));  // out of it
  }
  return bytes;
}

// Memory and seconds of the update of the rank with most of it.
void add_holders(const PredictionInput& input, const std::vector<UnitLayout>& units, Prediction& out) {
  double heaviest = -1, slowest = -1;
  for (int64_t rank = 0; rank < input.mesh.size(); ++rank) {
    const Coordinate at = input.mesh.coordinate(rank);
    double masters = 0, states = 0, products = 0, moved = 0, resident = 0, whole = 0, largest = 0;
    for (const UnitLayout& unit : units) {
      double elements = 0;
      for (const LayoutParameter& parameter : unit.parameters) elements += static_cast<double>(parameter.elements());
      whole += elements;
      largest = std::max(largest, elements);
      const ShardPart& part = unit.shards[static_cast<size_t>(at.shard)];
      resident += static_cast<double>(part.total());
      for (const Piece& piece : part.pieces) {
        const LayoutParameter& parameter = unit.parameters[piece.parameter];
        if (parameter.placement == Placement::owner && parameter.owner.replicate != at.replicate) continue;
        const auto count = static_cast<double>(piece.count);
        masters += 4 * count;
        states += (parameter.route == Route::muon ? 4 : 8) * count;
        moved += (parameter.route == Route::muon ? 20 : 28) * count;
        if (parameter.route != Route::muon || parameter.shape.empty() || count == 0) continue;
        const auto rows = static_cast<double>(parameter.shape[0]), columns = count / rows;
        products += orthogonalise_products(rows, columns);
      }
    }
    const auto weight = static_cast<double>(c10::elementSize(input.weight_dtype));
    // Freed: what this call and its neighbour read. The copies that are published stay in any case.
    const double weights = weight * (resident + (input.free_weights ? 2 * largest : whole));
    const double gradients = weight * (input.free_weights ? 2 * largest : whole) + 4 * resident;
    if (masters + states + weights + gradients > heaviest) {
      heaviest = masters + states + weights + gradients;
      out.masters = masters, out.states = states, out.weights = weights, out.gradients = gradients;
    }
    const double orthogonalise = products / input.products_per_s, adamw = moved / input.memory_bytes_per_s;
    if (orthogonalise + adamw > slowest) {
      slowest = orthogonalise + adamw;
      out.orthogonalise_s = orthogonalise, out.adamw_s = adamw;
    }
  }
}

}  // namespace

Prediction predict(const PredictionInput& input) {
  Prediction out;
  std::vector<PlanParameter> owned;
  int64_t blocks = 0;
  for (const PlanParameter& parameter : input.parameters) {
    if (parameter.route != Route::sharded_adamw) owned.push_back(parameter);
    blocks += (parameter.elements() + kBlock - 1) / kBlock;
  }
  out.plan = make_ownership_plan(std::move(owned), input.mesh, input.plan);
  const auto units = layouts_of(input, out.plan);
  const auto acquired = acquisitions(input);
  Counter counter(input, out);
  for (size_t i = 0; i < units.size(); ++i) counter.unit(units[i], acquired[i]);
  counter.world(blocks);
  add_holders(input, units, out);
  out.copies_s = copied_bytes(input, units, acquired) / input.memory_bytes_per_s;
  for (const auto& [name, bytes] : out.bytes) {
    const auto own = input.collective_bytes_per_s.find(name.substr(name.rfind('/') + 1));
    const double rate = own == input.collective_bytes_per_s.end() ? input.link_bytes_per_s : own->second;
    out.link_s += bytes / rate + static_cast<double>(out.calls.at(name)) * input.link_latency_s;
  }
  const double compute = input.micro_batch_s * static_cast<double>(input.reduction.micro_batches);
  out.step_s = (input.messages_take_processor ? compute + out.link_s : std::max(compute, out.link_s)) + out.copies_s +
               out.orthogonalise_s + out.adamw_s;
  return out;
}

PlannedSchedule planned_schedule(const PredictionInput& input) {
  PlannedSchedule planned;
  std::map<std::string, size_t> place;  // of a parameter: its unit
  for (const PlanParameter& parameter : input.parameters) {
    const std::string unit = unit_of(parameter);
    const auto found = std::find(planned.units.begin(), planned.units.end(), unit);
    place[parameter.name] = static_cast<size_t>(found - planned.units.begin());
    if (found == planned.units.end()) planned.units.push_back(unit);
  }
  ScheduleInput& schedule = planned.input;
  schedule.units = planned.units.size();
  schedule.free_weights = input.free_weights;
  for (size_t unit = 0; unit < schedule.units && input.calls.empty(); ++unit) schedule.calls.push_back({unit});
  for (const auto& names : input.calls) {
    std::vector<size_t> read;
    for (const std::string& name : names) read.push_back(place.at(name));
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    schedule.calls.push_back(std::move(read));
  }
  return planned;
}

double orthogonalise_products(double rows, double columns) {
  const double small = std::min(rows, columns), big = std::max(rows, columns);
  return 5 * small * small * (2 * big + small);
}

OrderedJson Prediction::to_json() const {
  OrderedJson messages = OrderedJson::object();
  for (const auto& [name, moved] : bytes) messages[name] = {{"bytes", moved}, {"messages", calls.at(name)}};
  const auto [least, most] = std::minmax_element(plan.costs.begin(), plan.costs.end());
  return {{"mesh", plan.mesh.text()},
          {"ownership", {{"least", *least}, {"most", *most}, {"most_over_mean", plan.imbalance()}}},
          {"memory", {{"masters", masters}, {"states", states}, {"weights", weights}, {"gradients", gradients}}},
          {"messages", messages},
          {"seconds",
           {{"orthogonalise", orthogonalise_s},
            {"adamw", adamw_s},
            {"copies", copies_s},
            {"link", link_s},
            {"step", step_s}}}};
}

}  // namespace pacer::parallel
