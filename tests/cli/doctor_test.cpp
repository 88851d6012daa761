#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

using testing::HasSubstr;

Json back_end(const Json& report, const std::string& product) {
  for (const Json& entry : report.at("back_ends")) {
    if (entry.at("product") == product) return entry;
  }
  return nullptr;
}

TEST(DoctorCommand, TellsBackEndsCapabilitiesAndSettings) {
  const Outcome outcome =
      pacer({"doctor", "--device", "cpu", "--json"}, {"LOCAL_RANK=0", "PACER_DISABLED_SITES=no.such"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const Json report = Json::parse(outcome.out);
  EXPECT_EQ(report.at("device").at("name"), "cpu");
  EXPECT_EQ(report.at("device").at("own_kernels"), true);
  const Json& capabilities = report.at("device").at("capabilities");
  // Every probe ran in a process of its own and found what the table promises.
  int probed = 0;
  for (const auto& [name, entry] : capabilities.items()) {
    if (entry.at("works").is_null()) continue;
    ++probed;
    EXPECT_EQ(entry.at("works"), entry.at("promised")) << name << ": " << entry.at("message");
  }
  EXPECT_GE(probed, 9);
  bool warned = false;
  for (const Json& row : report.at("environment")) {
    if (row.at("variable") == "PACER_DISABLED_SITES") warned = !row.at("advice").get<std::string>().empty();
  }
  EXPECT_TRUE(warned);
  EXPECT_EQ(back_end(report, "npu").at("state"), "absent") << back_end(report, "npu");
  EXPECT_THAT(back_end(report, "npu").at("note").get<std::string>(), HasSubstr("libtorch_npu.so"));
}

// Large tensors get large pages, unless the user says otherwise.
TEST(DoctorCommand, ThePagesOfLargeTensorsAreASettingLikeOthers) {
  for (const auto& [given, seen] : {std::pair{"THP_MEM_ALLOC_ENABLE", "1"}, {"THP_MEM_ALLOC_ENABLE=0", "0"}}) {
    const Outcome outcome = pacer({"doctor", "--device", "cpu", "--no-probes", "--json"}, {given});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const Json report = Json::parse(outcome.out);
    std::string found = "no such row";
    for (const Json& row : report.at("environment")) {
      if (row.at("variable") != "THP_MEM_ALLOC_ENABLE") continue;
      found = row.at("value");
      EXPECT_EQ(row.at("advice").get<std::string>().empty(), found == "1");
    }
    EXPECT_EQ(found, seen);
  }
}

// A library that cannot be opened is a row of the table, and nothing that `auto` hides.
TEST(DoctorCommand, ShowsABrokenBackEnd) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "libpacer_npu.so", "not a library\n");
  const std::string plugins = "PACER_PLUGIN_DIR=" + folder.path().string();
  const Outcome listed = pacer({"doctor", "--device", "cpu", "--no-probes"}, {plugins});
  EXPECT_EQ(listed.exit_code, 0) << listed.error;
  EXPECT_THAT(listed.out, testing::AllOf(HasSubstr("broken"), HasSubstr("libpacer_npu.so")));
  const Outcome chosen = pacer({"doctor", "--no-probes"}, {plugins});
  EXPECT_EQ(chosen.exit_code, 5);
  EXPECT_THAT(chosen.error, HasSubstr("libpacer_npu.so"));
}

TEST(DoctorCommand, SelftestOfTheHostPasses) {
  const Outcome outcome = pacer({"doctor", "--selftest", "cpu", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error << outcome.out;
  const Json report = Json::parse(outcome.out);
  EXPECT_EQ(report.at("passed"), true);
  EXPECT_GT(report.at("checks").size(), 20u);
}

// A simulated device refuses all that it can meanwhile, and the report says so.
TEST(DoctorCommand, SelftestOfASimulatedDevicePassesWithEveryRefusal) {
  const Outcome outcome = pacer({"doctor", "--selftest", "simnpu", "--seeds", "1", "--json"},
                                {"OMP_NUM_THREADS=1", "SIMNPU_SWITCHES=delay_seed=1"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error << outcome.out;
  const Json report = Json::parse(outcome.out);
  EXPECT_EQ(report.at("passed"), true);
  const auto on = report.at("switches_on").get<std::vector<std::string>>();
  EXPECT_THAT(on, testing::IsSupersetOf({"refuse_int64_indices", "refuse_float64", "refuse_zero_size",
                                         "refuse_single_rank", "hazard_checker"}));
  EXPECT_THAT(on, testing::Not(testing::Contains("delay_seed"))) << "a seed of 1 is no rule";
  EXPECT_EQ(report.at("device").at("capabilities").at("int64_indices").at("promised"), false);
}

}  // namespace
}  // namespace pacer::cli
