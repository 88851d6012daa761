// The main job on the simulated NPU and on the host: what is promised of their texts.
// pacer/conformance compares a few texts at every build; this is the whole job, a minute of CPU time.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

namespace fs = std::filesystem;

using Texts = std::map<std::string, std::string>;  // prompt -> answer of the target alone

Texts texts_of(const Json& evaluation) {
  Texts texts;
  for (const auto& [kind, task] : evaluation.at("tasks").items()) {
    for (const Json& result : task.at("results")) texts[result.at("id")] = result.at("text");
  }
  return texts;
}

Json quickstart(const fs::path& model, const fs::path& folder, const std::string& device, const std::string& kernels) {
  const Outcome outcome =
      pacer({"quickstart", "-q",        "--dir", folder.string(),        "--model", model.string(),     "--steps",
             "3",          "--prompts", "16",    "--evaluation-prompts", "1",       "--full",           "--threads",
             "1",          "--device",  device,  "--kernel-impl",        kernels,   "--attention-impl", kernels});
  EXPECT_EQ(outcome.exit_code, 0) << device << ": " << outcome.error;
  return read_json(folder / "summary.json");
}

TEST(DeviceTextsFull, QuickstartOnTheSimulatedDevice) {
  const test::TemporaryFolder folder;
  const fs::path model = folder.path() / "model";
  write_tiny_model(model);
  for (const std::string kernels : {"auto", "plain"}) {
    const fs::path here = folder.path() / ("host-" + kernels), there = folder.path() / ("device-" + kernels);
    const Json host = quickstart(model, here, "cpu", kernels), device = quickstart(model, there, "simnpu", kernels);
    for (const auto& [kind, domain] : device.at("domains").items()) {
      EXPECT_TRUE(domain.at("identical_f32").get<bool>()) << kind;
      EXPECT_TRUE(domain.at("identical_bf16").get<bool>()) << kind;
    }
    const auto texts = [](const fs::path& run, const char* file) { return texts_of(read_json(run / file)); };
    EXPECT_GE(texts(here, "evaluation_f32.json").size(), 3u);
    EXPECT_EQ(texts(there, "evaluation_f32.json"), texts(here, "evaluation_f32.json")) << kernels;
    if (kernels == "plain") {
      EXPECT_EQ(texts(there, "evaluation.json"), texts(here, "evaluation.json"));
    }
  }
}

}  // namespace
}  // namespace pacer::cli
