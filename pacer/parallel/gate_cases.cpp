#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "pacer/base/error.h"
#include "pacer/parallel/gate.h"

namespace pacer::parallel {
namespace {

constexpr size_t kKinds = 9;
using Choice = std::array<size_t, kKinds>;  // a value of each kind of setting

std::vector<Mesh> meshes_of(int64_t world) {
  std::vector<Mesh> meshes;
  for (int64_t shard = 1; shard <= world; ++shard) {
    if (world % shard == 0) meshes.push_back({world / shard, shard});
  }
  return meshes;
}

std::vector<size_t> counts_of(int64_t world) { return {meshes_of(world).size(), 2, 3, 2, 2, 2, 2, 2, 2}; }

GateCase case_of(const Choice& choice, int64_t world) {
  const auto meshes = meshes_of(world);
  GateCase made{.mesh = meshes[choice[0]]};
  made.micro_batches = choice[1] == 0 ? 1 : 4;
  made.accumulation = static_cast<Accumulation>(choice[2]);
  made.different_data = choice[3] == 0;
  made.half_weights = choice[4] == 1;
  made.free_weights = choice[5] == 1;
  made.unshard = choice[6] == 0 ? Unshard::broadcast : Unshard::all_gather;
  made.overlap = choice[7] == 0;
  if (choice[8] == 1) made.restart_from = meshes[(choice[0] + 1) % meshes.size()];
  return made;
}

std::vector<Choice> product(int64_t world) {
  std::vector<Choice> all = {Choice{}};
  const auto counts = counts_of(world);
  for (size_t kind = 0; kind < kKinds; ++kind) {
    std::vector<Choice> wider;
    for (const Choice& choice : all) {
      for (size_t value = 0; value < counts[kind]; ++value) {
        wider.push_back(choice);
        wider.back()[kind] = value;
      }
    }
    all = std::move(wider);
  }
  return all;
}

using Pair = std::tuple<size_t, size_t, size_t, size_t>;  // kind, value, other kind, its value

std::vector<Pair> pairs_of(const Choice& choice) {
  std::vector<Pair> pairs;
  for (size_t a = 0; a < kKinds; ++a) {
    for (size_t b = a + 1; b < kKinds; ++b) pairs.emplace_back(a, choice[a], b, choice[b]);
  }
  return pairs;
}

}  // namespace

std::string GateCase::name() const {
  std::string text = mesh.text() + " " + std::to_string(micro_batches) + " " + name_of(accumulation);
  text += different_data ? " different exact" : " identical";
  text += half_weights ? " bf16" : " f32";
  text += free_weights ? " free" : " kept";
  text += std::string(" ") + name_of(unshard) + (overlap ? "" : " synchronous");
  if (restart_from) text += " from-" + restart_from->text();
  return text;
}

std::vector<GateCase> all_cases(int64_t world) {
  std::vector<GateCase> cases;
  for (const Choice& choice : product(world)) {
    const GateCase made = case_of(choice, world);
    // One micro-batch comes together in one way only.
    if (made.micro_batches > 1 || made.accumulation == Accumulation::reduce_each) cases.push_back(made);
  }
  return cases;
}

// Greedy: always the case that brings most pairs together for the first time.
std::vector<GateCase> covering_cases(int64_t world) {
  const std::vector<Choice> all = product(world);
  std::set<Pair> open;
  for (const Choice& choice : all) {
    for (const Pair& pair : pairs_of(choice)) open.insert(pair);
  }
  std::vector<GateCase> cases;
  while (!open.empty()) {
    const auto gain = [&](const Choice& choice) {
      const auto pairs = pairs_of(choice);
      return std::count_if(pairs.begin(), pairs.end(), [&](const Pair& pair) { return open.contains(pair); });
    };
    const Choice* best = &all.front();
    auto most = gain(*best);
    for (const Choice& choice : all) {
      const auto brought = gain(choice);
      if (brought > most) most = brought, best = &choice;
    }
    for (const Pair& pair : pairs_of(*best)) open.erase(pair);
    cases.push_back(case_of(*best, world));
  }
  return cases;
}

std::vector<GateCase> part_of(const std::vector<GateCase>& cases, int64_t part, int64_t parts) {
  if (part < 1 || part > parts) {
    throw Error(ErrorKind::usage, "part " + std::to_string(part) + " of " + std::to_string(parts) +
                                      " parts: allowed are 1 to their number");
  }
  std::vector<GateCase> some;
  for (size_t i = static_cast<size_t>(part - 1); i < cases.size(); i += static_cast<size_t>(parts)) {
    some.push_back(cases[i]);
  }
  return some;
}

std::vector<PlantedFault> planted_faults() {
  return {{"a reduce left out on one rank", Fault::reduce_left_out},
          {"one owner changed on one rank", Fault::other_owner},
          {"momentum not restored", Fault::none, true},
          {"a micro-batch lost", Fault::lost_micro_batch},
          {"stage 2 skipped", Fault::second_stage_skipped},
          {"a replicated tensor counted twice in the norm", Fault::counted_twice},
          {"a stale publish", Fault::stale_publish}};
}

}  // namespace pacer::parallel
