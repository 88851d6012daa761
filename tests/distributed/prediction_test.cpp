#include "pacer/parallel/prediction.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include "tests/distributed/ranks.h"
#include "tests/distributed/small_model.h"

namespace pacer::parallel {
namespace {

struct Setting {
  Mesh mesh;
  int64_t micro_batches = 1;
  Accumulation accumulation = Accumulation::reduce_each;
  bool free_weights = false;
  Unshard unshard = Unshard::broadcast;
  bool exact = true;
};

// Every name that any rank counted or that was predicted, with the same bytes.
void compare(World& world, const Setting& s) {
  SmallModel model(SmallModelOptions{});
  auto parameters = model.parameters();
  PredictionInput input;
  input.mesh = s.mesh;
  input.reduction = {.micro_batches = s.micro_batches, .accumulation = s.accumulation, .exact = s.exact};
  input.unshard = s.unshard;
  input.free_weights = s.free_weights;
  for (EngineParameter& p : parameters) {
    p.replicated = false;
    input.parameters.push_back({p.name, p.weight.sizes().vec(), false, p.route});
  }
  for (const Segment& segment : model.segments()) input.calls.push_back(segment.parameters);
  EngineOptions options = small_options(s.mesh, s.micro_batches, s.exact);
  options.reduction.accumulation = s.accumulation;
  options.unshard = s.unshard;
  options.free_weights = s.free_weights;
  Engine engine(world, parameters, model.segments(), model.calls(), options);
  const auto step = [&](int64_t number) {
    for (int64_t k = 0; k < s.micro_batches; ++k) {
      model.micro_batch(engine, number, world.rank() * s.micro_batches + k);
    }
    engine.step({.muon = 0.02, .adamw = 0.01});
  };
  step(0);
  ProcessGroup* groups[] = {engine.groups().row.get(), engine.groups().column.get(), &world.all()};
  for (ProcessGroup* group : groups) group->clear_traffic();
  step(1);
  std::map<std::string, Traffic> counted;
  for (ProcessGroup* group : groups) {
    for (const auto& [name, traffic] : group->traffic()) {
      counted[name].bytes += traffic.bytes;
      counted[name].calls += traffic.calls;
    }
  }
  const Prediction prediction = predict(input);
  std::map<std::string, double> names = prediction.bytes;
  for (const auto& [name, traffic] : counted) names.emplace(name, 0);
  for (const auto& [name, bytes] : names) {
    at::Tensor sum = at::full({1}, counted[name].bytes, at::kDouble);
    world.all().sum(sum, "test").wait();
    EXPECT_NEAR(sum.item<double>() / static_cast<double>(world.size()), bytes, 1e-6 * bytes) << name;
  }
}

TEST(Prediction, BytesAreThoseThatAreCounted) {
  run_ranks(4, [](World& world) {
    for (const Mesh& mesh : {Mesh{4, 1}, {2, 2}, {1, 4}}) {
      for (const Setting& s : {Setting{mesh},
                               {mesh, 2, Accumulation::no_sync, true},
                               {mesh, 2, Accumulation::replicate_gate, true, Unshard::all_gather},
                               {mesh, 2, Accumulation::reduce_each, false, Unshard::all_gather, false},
                               {mesh, 4, Accumulation::reduce_each}}) {
        SCOPED_TRACE(mesh.text() + " " + std::to_string(s.micro_batches) + " " + name_of(s.accumulation));
        compare(world, s);
      }
    }
  });
}

TEST(Prediction, MoreRanksHoldLessAndLinksCost) {
  PredictionInput input;
  for (int layer = 0; layer < 16; ++layer) {
    input.parameters.push_back({"layers." + std::to_string(layer) + ".up.weight", {4096, 4096}});
  }
  input.free_weights = true;
  input.mesh = {1, 2};
  const Prediction two = predict(input);
  input.mesh = {1, 8};
  const Prediction eight = predict(input);
  EXPECT_DOUBLE_EQ(two.masters, 4 * eight.masters);
  EXPECT_DOUBLE_EQ(two.orthogonalise_s, 4 * eight.orthogonalise_s);
  EXPECT_GT(eight.link_s, two.link_s);
  input.link_bytes_per_s /= 2;
  EXPECT_GT(predict(input).link_s, 1.5 * eight.link_s);
  input.micro_batch_s = 1;
  const double update = eight.copies_s + eight.orthogonalise_s + eight.adamw_s;
  EXPECT_NEAR(predict(input).step_s, 1 + update, 1e-9) << "messages hide";
  input.messages_take_processor = true;
  EXPECT_NEAR(predict(input).step_s, 1 + 2 * eight.link_s + update, 0.01 * eight.link_s) << "and here they do not";
  // A rate of its own is in place of the link's, for the collective that has it and no other.
  ASSERT_TRUE(eight.bytes.contains("acquire/broadcast"));
  input.collective_bytes_per_s = {{"broadcast", 2 * input.link_bytes_per_s}, {"gather", 1.0}};
  EXPECT_LT(predict(input).link_s, 2 * eight.link_s);
  EXPECT_GT(predict(input).link_s, eight.link_s);
}

}  // namespace
}  // namespace pacer::parallel
