#include <filesystem>
#include <functional>
#include <sstream>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/base/version.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

// The names below "Subcommands:" of a help text.
std::vector<std::string> subcommands(const std::string& help) {
  std::vector<std::string> names;
  std::istringstream lines(help);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Subcommands:") {
      inside = true;
    } else if (line.empty() || line[0] != ' ') {
      inside = false;
    } else if (inside && line.size() > 2 && line[2] != ' ') {
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  return names;
}

TEST(CommandLine, WithoutArgumentsItShowsItsCommands) {
  const Outcome outcome = pacer({});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_FALSE(subcommands(outcome.out).empty()) << outcome.out;
  EXPECT_EQ(pacer({"--version"}).out, std::string("pacer ") + version() + "\n");
}

TEST(CommandLine, EveryCommandHasExamplesAndJson) {
  size_t leaves = 0;
  const std::function<void(std::vector<std::string>)> visit = [&](std::vector<std::string> path) {
    path.push_back("--help");
    const Outcome outcome = pacer(path);
    path.pop_back();
    std::string name;
    for (const std::string& part : path) name += part + " ";
    ASSERT_EQ(outcome.exit_code, 0) << name;
    const std::vector<std::string> children = subcommands(outcome.out);
    for (const std::string& child : children) {
      path.push_back(child);
      visit(path);
      path.pop_back();
    }
    if (!children.empty()) return;
    ++leaves;
    const size_t examples = outcome.out.find("Examples:\n");
    ASSERT_NE(examples, std::string::npos) << outcome.out;
    // A command of several ranks stands behind what starts them.
    EXPECT_NE(outcome.out.find("pacer " + name.substr(0, name.size() - 1), examples), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("--json"), std::string::npos) << name;
  };
  visit({});
  EXPECT_GE(leaves, 1u);
}

TEST(CommandLine, AMistypedNameIsAUsageErrorWithTheNearestName) {
  const Outcome command = pacer({"reprot"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_EQ(command.out, "");
  EXPECT_NE(command.error.find("error: pacer: unknown command 'reprot'\n"), std::string::npos) << command.error;
  EXPECT_NE(command.error.find("hint: did you mean 'report'?"), std::string::npos) << command.error;

  const Outcome option = pacer({"report", "x", "--otu", "y"});
  EXPECT_EQ(option.exit_code, 2);
  EXPECT_NE(option.error.find("unknown option '--otu'"), std::string::npos) << option.error;
  EXPECT_NE(option.error.find("did you mean '--out'?"), std::string::npos) << option.error;

  const Outcome missing = pacer({"report"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.error.find("'pacer report --help'"), std::string::npos) << missing.error;
}

TEST(CommandLine, WithJsonAnErrorIsAnObjectOnStdout) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"report", "/nowhere/at/all", "--json"}, {"report", "--json", "--nonsense"}}) {
    const Outcome outcome = pacer(arguments);
    const Json error = Json::parse(outcome.out).at("error");
    EXPECT_EQ(error.at("exit_code"), outcome.exit_code);
    EXPECT_FALSE(error.at("message").get<std::string>().empty());
    EXPECT_NE(outcome.error.find("error: " + error.at("message").get<std::string>()), std::string::npos);
    EXPECT_NE(outcome.error.find("hint: " + error.at("hint").get<std::string>()), std::string::npos);
  }
  EXPECT_EQ(pacer({"report", "/nowhere/at/all"}).exit_code, 3) << "data";
}

TEST(CommandLine, ItStartsOnceMoreWithShortWaits) {
  // The OpenMP library prints its settings while it is loaded, so the last print is of the process that does the work.
  const std::vector<std::string> environment = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_DISPLAY_ENV=verbose"};
  const Outcome outcome = pacer({"config", "schema"}, environment);
  EXPECT_EQ(outcome.exit_code, 0);
  const size_t last = outcome.error.rfind("OMP_WAIT_POLICY");
  ASSERT_NE(last, std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("PASSIVE", last), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("GOMP_SPINCOUNT = '2000'", last), std::string::npos) << outcome.error;
  const Outcome active = pacer({"config", "schema"}, {"OMP_WAIT_POLICY=active", "OMP_DISPLAY_ENV=true"});
  EXPECT_NE(active.error.find("ACTIVE"), std::string::npos) << "a setting of the user stays";
  for (const std::vector<std::string>& text : {std::vector<std::string>{}, {"--help"}, {"train", "-h"}}) {
    const std::string once = pacer(text, environment).error;
    EXPECT_EQ(once.find("OMP_WAIT_POLICY"), once.rfind("OMP_WAIT_POLICY")) << "text is printed at the first start";
  }
}

TEST(ReportCommand, WritesAPageAndSaysWhere) {
  const test::TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "a run";
  std::filesystem::create_directories(run);
  write_file(run / "metrics.jsonl",
             "{\"kind\":\"train\",\"step\":1,\"loss\":2.0}\n{\"kind\":\"train\",\"step\":2,\"loss\":1.0}\n");
  const Outcome person = pacer({"report", run.string()});
  EXPECT_EQ(person.exit_code, 0) << person.error;
  EXPECT_EQ(person.out, (run / "report.html").string() + "\n");
  const Outcome program = pacer({"report", run.string(), "--out", (folder.path() / "b.html").string(), "--json"});
  const std::string page = read_file(folder.path() / "b.html");
  EXPECT_EQ(Json::parse(program.out).at("bytes"), page.size());
  EXPECT_NE(page.find("training 1.00"), std::string::npos);
  EXPECT_EQ(read_file(run / "report.html"), page);
}

TEST(ReportCommand, AFolderThatCannotBeWrittenIsAnErrorOfResources) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":2.0}\n");
  const Outcome outcome = pacer({"report", folder.path().string(), "--out", "/proc/nowhere/report.html"});
  EXPECT_EQ(outcome.exit_code, 7) << outcome.error;
}

}  // namespace
}  // namespace pacer::cli
