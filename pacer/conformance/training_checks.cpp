#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include "pacer/base/json.h"
#include "pacer/conformance/checks.h"
#include "pacer/conformance/tiny.h"
#include "pacer/decode/loop.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/kernels.h"
#include "pacer/device/names.h"
#include "pacer/device/plugin.h"
#include "pacer/draft/block_proposer.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/run_folder.h"
#include "pacer/train/train.h"

namespace pacer::conformance {
namespace {

namespace fs = std::filesystem;

constexpr double kStepBound = 1e-4;  // relative, at each step, plain operators on both sides

train::TrainResult train_on(Scene& scene, const std::string& device, const std::string& run, int64_t stop_after = 0) {
  train::Recipe recipe = tiny_recipe(scene.scratch, device);
  recipe.kernel_impl = recipe.attention_impl = "plain";
  int64_t steps = 0;
  train::TrainOptions options;
  options.run = scene.scratch / run;
  options.command = {"conformance"};
  options.stop_requested = [&] { return ++steps == stop_after; };
  return train::train(train::resolve(recipe, "conformance"), options);
}

std::vector<double> losses_of(const Scene& scene, const std::string& run) {
  std::vector<double> losses;
  std::ifstream lines(scene.scratch / run / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record.at("kind") == "train") losses.push_back(record.at("loss").get<double>());
  }
  return losses;
}

void compare_runs(const Scene& scene, const std::string& run, const std::string& expected_run) {
  const std::vector<double> found = losses_of(scene, run), expected = losses_of(scene, expected_run);
  require(!expected.empty() && found.size() == expected.size(),
          std::to_string(found.size()) + " losses, expected " + std::to_string(expected.size()));
  for (size_t i = 0; i < found.size(); ++i) {
    require(std::abs(found[i] - expected[i]) <= kStepBound * std::abs(expected[i]),
            "step " + std::to_string(i + 1) + ": loss " + std::to_string(found[i]) + ", on the host " +
                std::to_string(expected[i]));
  }
}

void twenty_steps(Scene& scene) {
  train_on(scene, device::kHost, "host");
  const train::TrainResult there = train_on(scene, scene.runtime.name(), "there");
  require(there.finished && there.last_loss < there.first_loss, "the run on the device learnt nothing");
  compare_runs(scene, "there", "host");
}

// Ten steps here, ten there, both ways, against twenty on the host.
void checkpoints_travel(Scene& scene) {
  train_on(scene, device::kHost, "host");
  const std::string there = scene.runtime.name();
  for (const auto& [run, first, second] :
       {std::tuple<std::string, std::string, std::string>{"out", device::kHost, there},
        {"back", there, device::kHost}}) {
    train_on(scene, first, run, 10);
    const train::TrainResult end = train_on(scene, second, run);
    require(end.finished && end.step == 20, "the run did not go on on " + second);
    compare_runs(scene, run, "host");
  }
}

// What was trained on the device is read, and its texts are those of the target alone.
void evaluation(Scene& scene) {
  const train::TrainResult trained = train_on(scene, scene.runtime.name(), "run");
  device::use_kernel_paths({});
  const std::shared_ptr<const target::Target> target =
      target::Target::load(scene.scratch / "target", at::kFloat, scene.runtime);
  const auto draft = draft::load_block_proposer(trained.draft, target);
  decode::DecodeOptions options;
  options.sampling.max_new_tokens = 48;
  options.sampling.temperature = 0;
  const std::vector<int64_t> prompt = tiny_rows(2)[1].prompt;
  const auto with_draft = decode::decode_speculative(*target, *draft, prompt, options);
  require(with_draft.tokens == decode::decode_plain(*target, prompt, options).tokens, "another text with the draft");
  require(!with_draft.rounds.empty() && with_draft.counts().rounds > 0, "the draft was not asked");
}

// A step that needs more than there is ends in an error that says so, and the device goes on.
void memory_that_ends(Scene& scene) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(scene.runtime.device());
  const at::Tensor kept = at::full({1000}, 2.0, options);
  const auto too_much = static_cast<int64_t>(scene.runtime.memory().total_bytes / 2);  // floats: twice what there is
  try {
    at::empty({too_much}, options);
  } catch (const c10::OutOfMemoryError&) {
    device::release_cached_memory(scene.runtime);
    require_close("sums after memory ended", (kept * kept).sum(), at::full({}, 4000.0), 1e-6);
    return;
  }
  throw Failed("twice the device's memory was handed out");
}

std::string has_no_end(const device::Runtime& runtime) {
  return runtime.can(device::Capability::host_memory) ? "the host swaps before it ends" : "";
}

constexpr const char* kDelaySeed = "delay_seed";

std::string no_delays(const device::Runtime& runtime) {
  const device::Plugin* plugin = runtime.plugin();
  if (plugin == nullptr || plugin->switches == nullptr) return "only a simulated device delays its streams";
  for (const device::Switch& one : plugin->switches()) {
    if (one.name == kDelaySeed) return "";
  }
  return "the device has no switch " + std::string(kDelaySeed);
}

// Training with delays that bring wrong orders to light. The checker of the simulated device is on throughout.
void delayed_streams(Scene& scene) {
  struct Delays {
    const device::Plugin& plugin;
    ~Delays() { plugin.set_switch(kDelaySeed, 0); }
  } delays{*scene.runtime.plugin()};
  train_on(scene, device::kHost, "host");
  for (int seed = scene.first_seed; seed < scene.first_seed + scene.seeds; ++seed) {
    delays.plugin.set_switch(kDelaySeed, seed);
    const std::string run = "seed" + std::to_string(seed);
    train_on(scene, scene.runtime.name(), run);
    compare_runs(scene, run, "host");
    fs::remove_all(scene.scratch / run);
  }
}

}  // namespace

std::vector<Check> training_checks() {
  return {
      {"training.twenty_steps", "the loss of each of twenty steps as on the host", twenty_steps},
      {"training.checkpoints_travel", "a run goes on on another device", checkpoints_travel},
      {"training.evaluation", "a draft trained here is read and proposes losslessly", evaluation},
      {"training.memory_that_ends", "out of memory is an error, and the device goes on", memory_that_ends, has_no_end},
      {"training.delayed_streams", "training under random delays between streams", delayed_streams, no_delays}};
}

}  // namespace pacer::conformance
