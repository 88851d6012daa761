#include "pacer/parallel/launch_environment.h"

#include <cstdlib>
#include <map>

#include <gmock/gmock.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/support/files.h"

namespace pacer::parallel {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string refused(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "nothing";
}

TEST(LaunchEnvironment, NothingMeansOneProcess) {
  const LaunchEnvironment environment = read({});
  EXPECT_EQ(environment.rank, 0);
  EXPECT_EQ(environment.world, 1);
  EXPECT_FALSE(environment.launched());
}

TEST(LaunchEnvironment, ReadsWhatTorchrunSets) {
  const LaunchEnvironment environment = read({{"RANK", "5"},
                                              {"WORLD_SIZE", "8"},
                                              {"LOCAL_RANK", "1"},
                                              {"LOCAL_WORLD_SIZE", "4"},
                                              {"MASTER_ADDR", "node0"},
                                              {"MASTER_PORT", "29500"},
                                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                              {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.world, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.local_world, 4);
  EXPECT_EQ(environment.master_address, "node0");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_TRUE(environment.launcher_hosts_store);
  EXPECT_EQ(environment.attempt, "2");
  EXPECT_TRUE(environment.launched());
}

TEST(LaunchEnvironment, AFileTakesTheServersPlace) {
  const LaunchEnvironment environment = read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PACER_STORE_FILE", "f"}});
  EXPECT_EQ(environment.store_file, "f");
  EXPECT_FALSE(environment.launcher_hosts_store);
  EXPECT_EQ(environment.local_world, 2) << "nobody said that there are other machines";
}

TEST(LaunchEnvironment, PartOfASetIsAnError) {
  const Variables server = {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  const auto with = [&](Variables variables) {
    variables.insert(server.begin(), server.end());
    return variables;
  };
  EXPECT_EQ(refused(with({{"RANK", "0"}})), "launcher: RANK is set and WORLD_SIZE is not");
  EXPECT_EQ(refused(with({{"WORLD_SIZE", "2"}})), "launcher: WORLD_SIZE is set and RANK is not");
  EXPECT_EQ(refused({{"LOCAL_RANK", "0"}}), "launcher: LOCAL_RANK is set and RANK is not");
  EXPECT_EQ(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
            "launcher: WORLD_SIZE is 2 and MASTER_ADDR and MASTER_PORT are not set");
  EXPECT_EQ(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
            "launcher: MASTER_ADDR is set and MASTER_PORT is not");
  EXPECT_EQ(refused(with({{"RANK", "2"}, {"WORLD_SIZE", "2"}})),
            "launcher: RANK is 2 of WORLD_SIZE 2; ranks count from 0");
  EXPECT_EQ(refused(with({{"RANK", "x"}, {"WORLD_SIZE", "2"}})), "launcher: RANK is 'x', allowed is 0 to 1048576");
  EXPECT_NE(refused(with({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})),
            "nothing");
  EXPECT_NE(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}}), "nothing");
}

TEST(LaunchEnvironment, TheErrorFileHasTorchrunsForm) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "error.json").string();
  write_error_file("nobody asked", 3);
  ::setenv("TORCHELASTIC_ERROR_FILE", file.c_str(), 1);
  write_error_file("the disk is full", 7);
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
  const Json value = read_json(file);
  EXPECT_EQ(value.at("message").at("message"), "the disk is full");
  EXPECT_EQ(value.at("message").at("errorCode"), 7);
  EXPECT_TRUE(value.at("message").at("extraInfo").at("timestamp").is_string());
}

}  // namespace
}  // namespace pacer::parallel
