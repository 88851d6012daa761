#include "pacer/parallel/checkpoint.h"

#include <csignal>

#include <gmock/gmock.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/formats/manifest.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/nn/tensor_io.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/small_model.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr StepRates kRates{.muon = 0.02, .adamw = 0.01};

// Steps begin .. end - 1 of the training that train_small does.
void go_on(Engine& engine, const SmallModel& model, int64_t begin, int64_t end) {
  const int64_t count = engine.options().reduction.micro_batches;
  for (int64_t step = begin; step < end; ++step) {
    for (int64_t k = 0; k < count; ++k) model.micro_batch(engine, step, engine.groups().data_rank * count + k);
    engine.step(kRates);
  }
}

std::map<std::string, std::string> content(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder)] = read_file(entry.path());
  }
  return files;
}

TEST(ParallelCheckpoint, GoesOnOnAnyMeshAsIfNothingHadHappened) {
  const test::TemporaryFolder folder;
  run_ranks(4, [&](World& world) {
    const SmallModelOptions small;
    const Trail reference = alone(small, 4, 4, small_options({1, 1}, 1, true));
    for (const auto& [from, to] :
         {std::pair{Mesh{1, 4}, Mesh{2, 2}}, {Mesh{2, 2}, Mesh{4, 1}}, {Mesh{4, 1}, Mesh{1, 4}}}) {
      const fs::path place = folder.path() / from.text();
      {
        const SmallModel model(small);
        Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options(from, 1, true));
        go_on(engine, model, 0, 2);
        save_checkpoint(engine, place);
      }
      SmallModel model(small);
      EngineOptions options = small_options(to, 1, true);
      options.free_weights = to.shard > 1;
      Engine engine(world, model.parameters(), model.segments(), model.calls(), options);
      go_on(engine, model, 7, 8);  // whatever stood here before is replaced
      load_checkpoint(engine, place);
      EXPECT_EQ(engine.steps(), 2);
      go_on(engine, model, 2, 4);
      for (const auto& [name, tensor] : state_of(engine)) {
        EXPECT_TRUE(test::same_bits(tensor, reference.states[3].at(name))) << name << " on " << to.text();
      }
    }
  });
  // And in one process that was never part of the training, with the leaves as micro-batches.
  run_ranks(1, [&](World& world) {
    const SmallModelOptions small;
    const SmallModel model(small);
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 1}, 4, true));
    load_checkpoint(engine, folder.path() / "1x4");
    go_on(engine, model, 2, 4);
    const Trail reference = alone(small, 4, 4, small_options({1, 1}, 1, true));
    for (const auto& [name, tensor] : state_of(engine)) {
      EXPECT_TRUE(test::same_bits(tensor, reference.states[3].at(name))) << name;
    }
  });
}

TEST(ParallelCheckpoint, SaveLoadSaveGivesTheSameBytes) {
  const test::TemporaryFolder folder;
  run_ranks(3, [&](World& world) {
    const SmallModelOptions small{.weight_dtype = at::kBFloat16};
    const SmallModel model(small), other(small);
    const EngineOptions options = small_options({1, 3}, 1, true);
    Engine engine(world, model.parameters(), model.segments(), model.calls(), options);
    go_on(engine, model, 0, 2);
    save_checkpoint(engine, folder.path() / "first");
    Engine again(world, other.parameters(), other.segments(), other.calls(), options);
    load_checkpoint(again, folder.path() / "first");
    save_checkpoint(again, folder.path() / "second");
  });
  EXPECT_EQ(content(folder.path() / "first"), content(folder.path() / "second"));
  EXPECT_EQ(content(folder.path() / "first").size(), 9u) << "two files of each rank, two indices, the manifest";
  // A folder of masters under their own names, which any reader of safetensors takes for a model.
  const auto source = formats::open_safetensors(folder.path() / "first");
  EXPECT_EQ(source->tensor("layers.0.weight").dtype, formats::DType::F32);
  EXPECT_EQ(source->names().size(), SmallModel(SmallModelOptions{}).parameters().size());
  const auto states = formats::open_safetensors(folder.path() / "first/states");
  EXPECT_TRUE(states->has("layers.0.weight.momentum"));
  EXPECT_TRUE(states->has("head.weight.exp_avg_sq"));
}

// A training keeps more in the folder than an engine, under a name of its own.
TEST(ParallelCheckpoint, HoldsWhatItsOwnerAdds) {
  const test::TemporaryFolder folder;
  const fs::path place = folder.path() / "step";
  run_ranks(2, [&](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 2}, 1, true));
    CheckpointExtras extras;
    extras.name = {"pacer.test", 7};
    extras.constants["table"] = at::full({3}, 4, at::kLong);
    extras.write = [](const fs::path& unnamed) { write_file(unnamed / "notes.txt", "mine"); };
    extras.fingerprints["data"] = "f";
    extras.details["step"] = 5;
    save_checkpoint(engine, place, extras);
    EXPECT_THROW(save_checkpoint(engine, place, extras), Error) << "it is there already";
    extras.replace = true;
    save_checkpoint(engine, place, extras);
    EXPECT_THROW(load_checkpoint(engine, place), Error) << "it has another name";
    load_checkpoint(engine, place, {"pacer.test", 7});
  });
  EXPECT_EQ(read_file(place / "notes.txt"), "mine");
  const formats::Manifest manifest = formats::read_manifest(place, "pacer.test", 7);
  EXPECT_EQ(manifest.details.at("step"), 5);
  EXPECT_EQ(manifest.fingerprints.at("data"), "f");
  EXPECT_TRUE(formats::open_safetensors(place)->has("table"));
}

TEST(ParallelCheckpoint, PlainWeightsOfAnySourceAndDtypeLoad) {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 2}, 1, true));
    const fs::path file = folder.path() / "weights.safetensors";
    if (world.rank() == 0) {
      std::vector<at::Tensor> kept;
      std::vector<formats::NamedTensor> named;
      for (const EngineParameter& p : model.parameters()) {
        kept.push_back((p.weight.detach() * 2).to(at::kBFloat16).contiguous());
        named.push_back({p.name, nn::view_of(kept.back())});
      }
      formats::write_safetensors(file, named);
    }
    world.all().barrier("test");
    load_weights(engine, file);
    const auto state = state_of(engine);
    const SmallModel fresh(SmallModelOptions{});
    for (const EngineParameter& p : fresh.parameters()) {
      const at::Tensor expected = (p.weight.detach() * 2).to(at::kBFloat16).to(at::kFloat);
      EXPECT_TRUE(test::same_bits(state.at(p.name), expected)) << p.name;
      EXPECT_TRUE(test::same_bits(state.at("live/" + p.name), expected)) << p.name;
    }
  });
}

TEST(ParallelCheckpoint, AnInterruptedOneIsNeverPickedUp) {
  const test::TemporaryFolder folder;
  const fs::path place = folder.path() / "half";
  const auto outcomes = outcomes_of_ranks(2, [&](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 2}, 1, true));
    if (world.rank() == 1) {
      // Dies where it would write its file: the other rank has made the folder and written its own.
      ::signal(SIGALRM, SIG_DFL);
      world.activity();
      engine.whole(engine.state_tensors().front());
      ::raise(SIGKILL);
    }
    engine.whole(engine.state_tensors().front());
    save_checkpoint(engine, place);
  });
  EXPECT_EQ(outcomes[0].exit_code, 2);
  EXPECT_EQ(outcomes[1].exit_code, 128 + SIGKILL);
  EXPECT_FALSE(fs::exists(place));
  run_ranks(1, [&](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 1}, 1, true));
    EXPECT_THROW(load_checkpoint(engine, place), Error);
  });
}

TEST(ParallelCheckpoint, AnotherModelsFolderIsRefusedOnEveryRank) {
  const test::TemporaryFolder folder;
  const auto outcomes = outcomes_of_ranks(2, [&](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 2}, 1, true));
    save_checkpoint(engine, folder.path() / "whole");
    auto fewer = model.parameters();
    fewer.pop_back();  // extra.weight
    const SmallModel other(SmallModelOptions{.use_extra = false});
    Engine smaller(world, fewer, other.segments(), other.calls(), small_options({1, 2}, 1, true));
    load_checkpoint(smaller, folder.path() / "whole");
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, HasSubstr("'extra.weight' belongs to no parameter of this training"));
  }
}

}  // namespace
}  // namespace pacer::parallel
