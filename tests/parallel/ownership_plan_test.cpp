#include "pacer/parallel/ownership_plan.h"

#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"

namespace pacer::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::vector<PlanParameter> model(const Json& golden, const std::string& name) {
  std::vector<PlanParameter> parameters;
  for (const Json& entry : golden.at("models").at(name)) {
    parameters.push_back({entry.at("name"), entry.at("shape").get<std::vector<int64_t>>()});
  }
  return parameters;
}

bool selected(const PlanParameter& parameter, const std::string& predicate) {
  if (predicate == "all") return true;
  return parameter.shape.size() >= 2 && parameter.name.find("embed") == std::string::npos &&
         parameter.name.find("lm_head") == std::string::npos;
}

PlanOptions options_of(const Json& given) {
  PlanOptions options;
  for (const auto& [key, value] : given.items()) {
    if (key == "owner_strategy") {
      options.strategy = value == "rank0" ? OwnerStrategy::rank0 : OwnerStrategy::round_robin;
      EXPECT_TRUE(value == "rank0" || value == "round_robin");
    } else if (key == "owner_cost_model") {
      EXPECT_EQ(value, "numel");
      options.cost_model = CostModel::numel;
    } else if (key == "pack_small_params") {
      options.pack_small = value;
    } else if (key == "hsdp_column_balance") {
      options.column_balance = value;
    } else if (key == "max_owners_per_group") {
      options.max_owners_per_group = value;
    } else {
      ADD_FAILURE() << "unknown option " << key;
    }
  }
  return options;
}

TEST(OwnershipCost, AndLayersAreThoseOfTheReference) {
  const Json golden = test::golden_json("muon/owner_plans.json");
  for (const auto& [name, entries] : golden.at("models").items()) {
    const auto parameters = model(golden, name);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i].elements(), entries[i].at("numel")) << parameters[i].name;
      EXPECT_EQ(update_cost(parameters[i], CostModel::optimizer), entries[i].at("cost")) << parameters[i].name;
      const auto layer = layer_of(parameters[i].name);
      EXPECT_EQ(layer ? Json(*layer) : Json(nullptr), entries[i].at("group")) << parameters[i].name;
    }
  }
}

TEST(OwnershipPlan, IsTheReferencesInEveryCase) {
  const Json golden = test::golden_json("muon/owner_plans.json");
  size_t cases = 0;
  for (const Json& entry : golden.at("cases")) {
    ++cases;
    SCOPED_TRACE("case " + std::to_string(cases) + ": " + entry.at("model").get<std::string>());
    const auto all = model(golden, entry.at("model"));
    const bool grid = !entry.at("replicate").is_null();
    const Mesh mesh{grid ? entry.at("replicate").get<int64_t>() : 1, entry.at("shard"), entry.value("tp_size", 1)};
    std::vector<PlanParameter> chosen;
    std::vector<size_t> index;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!selected(all[i], entry.at("predicate"))) continue;
      chosen.push_back(all[i]);
      for (const std::string& part : entry.value("tp_sharded_name_contains", std::vector<std::string>())) {
        if (all[i].name.find(part) != std::string::npos) chosen.back().tensor_sharded = true;
      }
      index.push_back(i);
    }
    const OwnershipPlan plan = make_ownership_plan(chosen, mesh, options_of(entry.at("options")));
    std::vector<size_t> order;
    Json owners = std::vector<Json>(all.size()), tensor_owners = std::vector<Json>(all.size());
    for (const Assignment& a : plan.order) {
      const size_t i = index[static_cast<size_t>(a.parameter)];
      order.push_back(i);
      owners[i] = grid ? Json({a.owner.shard, a.owner.replicate}) : Json(a.owner.shard);
      if (a.tensor_owner) tensor_owners[i] = *a.tensor_owner;
    }
    EXPECT_EQ(Json(order), entry.at("assignment_order"));
    EXPECT_EQ(owners, entry.at("owners"));
    EXPECT_EQ(plan.units, entry.at("allocation_unit_count"));
    EXPECT_EQ(plan.packed_units, entry.at("packed_allocation_unit_count"));
    if (entry.contains("tp_owners")) {
      EXPECT_EQ(tensor_owners, entry.at("tp_owners"));
    }
  }
  EXPECT_EQ(cases, golden.at("cases").size());
}

// The published example of four small layers and of two layers of an 8B Llama.
TEST(OwnershipPlan, PublishedExamples) {
  std::vector<PlanParameter> tiny, llama;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".mlp.";
    tiny.push_back({prefix + "gate_proj.weight", {1024, 256}});
    tiny.push_back({prefix + "up_proj.weight", {1024, 256}});
    tiny.push_back({prefix + "down_proj.weight", {256, 1024}});
  }
  const auto owners_by_unit = [](const OwnershipPlan& plan) {
    std::vector<std::pair<int64_t, int64_t>> owners(static_cast<size_t>(plan.units));
    for (const Assignment& a : plan.order) {
      owners[static_cast<size_t>(a.unit)] = {a.owner.shard, a.owner.replicate};
    }
    return owners;
  };
  using P = std::pair<int64_t, int64_t>;
  EXPECT_THAT(owners_by_unit(make_ownership_plan(tiny, {1, 4})), ElementsAre(P{0, 0}, P{1, 0}, P{2, 0}, P{3, 0}));
  EXPECT_THAT(owners_by_unit(make_ownership_plan(tiny, {2, 2})), ElementsAre(P{0, 0}, P{1, 0}, P{0, 1}, P{1, 1}));

  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (const auto& [name, rows, columns] : {std::tuple{"self_attn.q_proj", 4096, 4096},
                                              {"self_attn.k_proj", 1024, 4096},
                                              {"self_attn.v_proj", 1024, 4096},
                                              {"self_attn.o_proj", 4096, 4096},
                                              {"mlp.gate_proj", 14336, 4096},
                                              {"mlp.up_proj", 14336, 4096},
                                              {"mlp.down_proj", 4096, 14336}}) {
      llama.push_back({prefix + name + ".weight", {rows, columns}});
    }
  }
  const OwnershipPlan one = make_ownership_plan(llama, {1, 4});
  std::vector<int64_t> shards;
  for (const auto& [shard, replicate] : owners_by_unit(one)) shards.push_back(shard);
  EXPECT_THAT(shards, ElementsAre(0, 1, 2, 3, 0, 1, 3, 2, 2, 3, 2, 3));
  EXPECT_THAT(one.costs, ElementsAre(7242, 7242, 5819, 5819));
  EXPECT_THAT(one.elements, ElementsAre(117440512, 117440512, 100663296, 100663296));
  EXPECT_THAT(owners_by_unit(make_ownership_plan(llama, {2, 2})),
              ElementsAre(P{0, 0}, P{1, 0}, P{0, 1}, P{1, 1}, P{0, 0}, P{1, 0}, P{1, 1}, P{0, 1}, P{0, 1}, P{1, 1},
                          P{0, 1}, P{1, 1}));
}

TEST(OwnershipPlan, ACustomKeyDecidesWhatIsOneLayer) {
  const std::vector<PlanParameter> parameters = {{"a.w", {3000, 3000}}, {"b.w", {3000, 3000}}, {"c.w", {3000, 3000}}};
  PlanOptions options;
  options.max_owners_per_group = 1;
  const auto owners = [&] {
    std::set<int64_t> owners;
    for (const Assignment& a : make_ownership_plan(parameters, {1, 3}, options).order) owners.insert(a.owner.shard);
    return owners.size();
  };
  EXPECT_EQ(owners(), 1u) << "without a layer in their names they are one group";
  options.group_key = [](const PlanParameter& parameter) { return parameter.name.substr(0, 1); };
  EXPECT_EQ(owners(), 3u);
}

TEST(OwnershipPlan, TheRouteModelAsksTheRouteAndNotTheName) {
  const PlanParameter embedding{"embed.weight", {65536, 1024}, false, Route::adamw};
  PlanParameter named{"normalizer_proj.weight", {4096, 4096}, false, Route::muon};
  EXPECT_LT(update_cost(named, CostModel::optimizer), update_cost(embedding, CostModel::optimizer));
  EXPECT_GT(update_cost(named, CostModel::route), 10 * update_cost(embedding, CostModel::route));
  named.route = Route::adamw;
  EXPECT_LT(update_cost(named, CostModel::route), update_cost(embedding, CostModel::route));
}

TEST(OwnershipPlan, MemoryCanBeMadeToCount) {
  // By products alone the two flat matrices weigh next to nothing and would share an owner with each other.
  const std::vector<PlanParameter> parameters = {{"a.w", {2048, 2048}, false, Route::muon},
                                                 {"b.w", {16, 4'000'000}, false, Route::adamw},
                                                 {"c.w", {16, 4'000'000}, false, Route::adamw}};
  PlanOptions options{.cost_model = CostModel::route, .pack_small = false};
  options.group_key = [](const PlanParameter& parameter) { return parameter.name; };
  const auto shared = [&] {
    const OwnershipPlan plan = make_ownership_plan(parameters, {1, 2}, options);
    return plan.of(1).owner == plan.of(2).owner;
  };
  EXPECT_TRUE(shared());
  options.cost_per_megabyte = 1000;
  EXPECT_FALSE(shared());
}

// 32 layers of 4,096 with 8 key and value heads and 14,336 inner columns.
TEST(OwnershipPlan, OwnersOfALargeModelAreLoadedAlike) {
  std::vector<PlanParameter> parameters;
  for (int layer = 0; layer < 32; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (const auto& [name, rows, columns] : {std::tuple<const char*, int64_t, int64_t>{"self_attn.q_proj", 4096, 4096},
                                              {"self_attn.k_proj", 1024, 4096},
                                              {"self_attn.v_proj", 1024, 4096},
                                              {"self_attn.o_proj", 4096, 4096},
                                              {"mlp.gate_proj", 14336, 4096},
                                              {"mlp.up_proj", 14336, 4096},
                                              {"mlp.down_proj", 4096, 14336}}) {
      parameters.push_back({prefix + name + ".weight", {rows, columns}});
    }
  }
  for (const Mesh& mesh : {Mesh{1, 2}, {1, 4}, {1, 8}}) {
    EXPECT_LT(make_ownership_plan(parameters, mesh).imbalance(), 1.05) << mesh.text();
  }
  for (const Mesh& mesh : {Mesh{2, 2}, {2, 4}, {4, 4}}) {
    EXPECT_LT(make_ownership_plan(parameters, mesh).imbalance(), 1.10) << mesh.text();
  }
}

TEST(OwnershipPlan, RefusesWhatMakesNoPlan) {
  const std::vector<PlanParameter> one = {{"a", {2, 2}}};
  EXPECT_THROW(make_ownership_plan({{"a", {2}}, {"a", {3}}}, {1, 2}), Error);
  EXPECT_THROW(make_ownership_plan({{"a", {-2}}}, {1, 2}), Error);
  EXPECT_THROW(make_ownership_plan(one, {0, 2}), Error);
  EXPECT_THROW(make_ownership_plan(one, {1, 2}, {.max_owners_per_group = -1}), Error);
  EXPECT_THROW(make_ownership_plan(one, {1, 2}, {.cost_per_megabyte = -1}), Error);
  EXPECT_THROW(make_ownership_plan({{"a", {2, 2}, true}}, {1, 2, 2}, {.strategy = OwnerStrategy::rank0}), Error);
  EXPECT_TRUE(make_ownership_plan({}, {1, 2}).order.empty());
}

TEST(PlanDifference, NamesTheParameterAndBothOwners) {
  const std::vector<PlanParameter> parameters = {{"layers.0.a", {2048, 4096}}, {"layers.1.a", {2048, 4096}}};
  OwnershipPlan first = make_ownership_plan(parameters, {1, 2}), second = first;
  EXPECT_EQ(plan_difference(first.text(), second.text(), "rank 0", "rank 1"), "");
  EXPECT_EQ(first.digest(), second.digest());
  second.order[1].owner.shard = 0;
  EXPECT_NE(first.digest(), second.digest());
  const std::string said = plan_difference(first.text(), second.text(), "rank 0", "rank 1");
  EXPECT_THAT(said, HasSubstr("parameter layers.1.a: rank 0 has [2048,4096] muon, owner (shard 1, replicate 0)"));
  EXPECT_THAT(said, HasSubstr("rank 1 has [2048,4096] muon, owner (shard 0, replicate 0)"));
  EXPECT_EQ(said.find("layers.0.a"), std::string::npos) << said;
  const OwnershipPlan other = make_ownership_plan({{"layers.0.a", {2048, 4096}}}, {2, 1});
  const std::string more = plan_difference(first.text(), other.text(), "rank 0", "rank 1", 2);
  EXPECT_THAT(more, HasSubstr("layers.1.a: rank 0 has"));
  EXPECT_THAT(more, HasSubstr("and 1 more"));
}

// Any model on any mesh: one owner each, the same from any order of computing, nothing idle while another has two.
RC_GTEST_PROP(OwnershipPlanProperties, OneOwnerOnTheMeshAndLoadsThatAddUp, ()) {
  const Mesh mesh{*rc::gen::inRange<int64_t>(1, 5), *rc::gen::inRange<int64_t>(1, 6)};
  const auto count = *rc::gen::inRange<int>(0, 40);
  std::vector<PlanParameter> parameters;
  for (int i = 0; i < count; ++i) {
    const auto layer = std::to_string(*rc::gen::inRange(0, 6));
    parameters.push_back({"layers." + layer + ".p" + std::to_string(i) + ".weight",
                          {*rc::gen::inRange<int64_t>(0, 4000), *rc::gen::inRange<int64_t>(1, 4000)}});
  }
  PlanOptions options;
  options.pack_small = *rc::gen::arbitrary<bool>();
  options.column_balance = *rc::gen::arbitrary<bool>();
  options.max_owners_per_group = *rc::gen::inRange<int64_t>(0, 4);
  const OwnershipPlan plan = make_ownership_plan(parameters, mesh, options);
  std::vector<int64_t> costs(static_cast<size_t>(mesh.data_size())), seen(parameters.size());
  std::map<std::string, std::set<int64_t>> owners;
  for (const Assignment& a : plan.order) {
    RC_ASSERT(a.owner.shard >= 0 && a.owner.shard < mesh.shard);
    RC_ASSERT(a.owner.replicate >= 0 && a.owner.replicate < mesh.replicate);
    const PlanParameter& parameter = parameters[static_cast<size_t>(a.parameter)];
    const int64_t slot = a.owner.shard * mesh.replicate + a.owner.replicate;
    costs[static_cast<size_t>(slot)] += update_cost(parameter, options.cost_model);
    ++seen[static_cast<size_t>(a.parameter)];
    owners[*layer_of(parameter.name)].insert(slot);
  }
  RC_ASSERT(costs == plan.costs);
  RC_ASSERT(std::all_of(seen.begin(), seen.end(), [](int64_t times) { return times == 1; }));
  for (const auto& [layer, slots] : owners) {
    if (options.max_owners_per_group > 0) {
      RC_ASSERT(static_cast<int64_t>(slots.size()) <= options.max_owners_per_group);
    }
  }
  RC_ASSERT(make_ownership_plan(parameters, mesh, options).text() == plan.text());
}

// Without layers and packing the most loaded owner has at most the mean and one parameter more (Graham's bound).
RC_GTEST_PROP(OwnershipPlanProperties, NoOwnerIsLoadedBeyondTheMeanAndTheLargest, ()) {
  const Mesh mesh{1, *rc::gen::inRange<int64_t>(1, 9)};
  const auto count = *rc::gen::inRange<int>(1, 60);
  std::vector<PlanParameter> parameters;
  for (int i = 0; i < count; ++i) {
    parameters.push_back({"layers." + std::to_string(i) + ".weight", {*rc::gen::inRange<int64_t>(1, 6000), 3000}});
  }
  const OwnershipPlan plan = make_ownership_plan(parameters, mesh, {.pack_small = false});
  int64_t largest = 0;
  for (const PlanParameter& p : parameters) largest = std::max(largest, update_cost(p, CostModel::optimizer));
  const int64_t sum = std::accumulate(plan.costs.begin(), plan.costs.end(), int64_t{0});
  for (const int64_t cost : plan.costs) RC_ASSERT(cost * mesh.shard <= sum + largest * mesh.shard);
}

}  // namespace
}  // namespace pacer::parallel
