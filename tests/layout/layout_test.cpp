// The rules of the tree that a compiler does not check: who may include whom, and how large things may grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "pacer/base/files.h"
#include "tests/layout/device_names.h"
#include "tests/layout/rules.h"
#include "tests/support/files.h"

namespace pacer::layout {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLines = 600;
constexpr size_t kMaxReadmeLines = 15;

std::vector<Room> rooms() { return parse_rooms(read_file(test::source_dir() / "cmake" / "rooms.txt")); }

bool is_source(const fs::path& path) { return path.extension() == ".cpp" || path.extension() == ".h"; }

// Every C++ file below the given folders, relative to the source folder.
std::vector<fs::path> sources(const std::vector<std::string>& folders) {
  std::vector<fs::path> found;
  for (const std::string& folder : folders) {
    if (!fs::exists(test::source_dir() / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(test::source_dir() / folder)) {
      if (entry.is_regular_file() && is_source(entry.path())) {
        found.push_back(fs::relative(entry.path(), test::source_dir()));
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string text_of(const fs::path& relative) { return read_file(test::source_dir() / relative); }

size_t line_count(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST(Layers, ARoomIncludesOnlyRoomsAboveIt) {
  const std::vector<Room> order = rooms();
  const std::vector<fs::path> files = sources({"pacer"});
  ASSERT_GT(files.size(), 20u);
  for (const fs::path& file : files) {
    for (const std::string& violation : include_violations(file, text_of(file), order)) ADD_FAILURE() << violation;
  }
}

TEST(Layers, TheRuleItselfFindsEveryKindOfViolation) {
  const std::vector<Room> order = parse_rooms("# name torch\nbase no\ndevice yes\nformats no\nnn yes\n");
  const auto violations = [&](const std::string& file, const std::string& text) {
    return include_violations(file, text, order).size();
  };
  EXPECT_EQ(violations("pacer/nn/a.cpp", "#include \"pacer/base/error.h\"\n#include <ATen/ops/mm.h>\n"), 0u);
  EXPECT_EQ(violations("pacer/formats/a.cpp", "#include \"pacer/formats/b.h\"\n#include <vector>\n"), 0u);
  EXPECT_EQ(violations("pacer/base/a.cpp", "#include \"pacer/nn/linear.h\"\n"), 1u) << "a room below";
  EXPECT_EQ(violations("pacer/formats/a.cpp", "#include \"pacer/device/runtime.h\"\n"), 1u) << "torch through a room";
  EXPECT_EQ(violations("pacer/formats/a.cpp", "# include <c10/core/Device.h>\n"), 1u) << "torch itself";
  EXPECT_EQ(violations("pacer/nn/a.h", "#include <torch/torch.h>\n"), 1u) << "all of torch";
  EXPECT_EQ(violations("pacer/nn/a.cpp", "#include <ATen/ATen.h>\n"), 1u) << "all operators";
  EXPECT_EQ(violations("pacer/nn/a.cpp", "#include \"tests/support/files.h\"\n"), 1u) << "tests";
  EXPECT_EQ(violations("pacer/nn/a.cpp", "#include \"b.h\"\n"), 1u) << "a path that is not from the root";
  EXPECT_EQ(violations("pacer/attic/a.cpp", ""), 1u) << "a room that is not in the list";
}

// Examples are programs of users, who train torch::nn models.
TEST(Layers, TestsAndTheProgramDoNotIncludeAllOfTorch) {
  for (const fs::path& file : sources({"apps", "tests", "bench"})) {
    EXPECT_EQ(whole_torch_include(text_of(file)), "") << file;
  }
}

TEST(Layers, EveryRoomOfTheListHasSourcesAndAReadme) {
  for (const Room& room : rooms()) {
    const fs::path folder = test::source_dir() / "pacer" / room.name;
    ASSERT_TRUE(fs::is_directory(folder)) << room.name;
    ASSERT_TRUE(fs::exists(folder / "README.md")) << room.name << " has no README.md";
    EXPECT_LE(line_count(read_file(folder / "README.md")), kMaxReadmeLines) << room.name;
    EXPECT_FALSE(sources({"pacer/" + room.name}).empty()) << room.name;
  }
}

TEST(DeviceNames, AreKnownToTheRoomOfDevicesAlone) {
  size_t read = 0;
  for (const fs::path& file : sources({"pacer", "apps"})) {
    if (file.string().starts_with("pacer/device/")) continue;
    ++read;
    for (const std::string& violation : device_names(file.string(), text_of(file))) ADD_FAILURE() << violation;
  }
  EXPECT_GT(read, 200u);
}

TEST(DeviceNames, TheRuleItselfFindsThem) {
  for (const char* line : {"if (x.is_cuda()) {", "getenv(\"ASCEND_RT_VISIBLE_DEVICES\")", "find(\"npu::npu_rms_norm\")",
                           "at::kCPU", "Runtime::open(\"cpu\")", "// as NCCL does", "device == \"simnpu:0\""}) {
    EXPECT_EQ(device_names("pacer/nn/a.cpp", line).size(), 1u) << line;
  }
  for (const char* line :
       {"cpu_s", "int64_t inputs = 0;", "watch.cpu()", "// CPU kernels", ".of({\"wall\", \"cpu\"}),"}) {
    EXPECT_TRUE(device_names("pacer/nn/a.cpp", line).empty()) << line;
  }
}

TEST(Layout, NoFileIsTooLongToBeRead) {
  for (const fs::path& file : sources({"pacer", "apps", "plugins", "tests", "bench", "examples"})) {
    EXPECT_LE(line_count(text_of(file)), kMaxLines) << file;
  }
}

TEST(Layout, EveryHeaderIsGuardedOnceAndSaysWhatItIsFor) {
  for (const fs::path& file : sources({"pacer", "apps"})) {
    if (file.extension() != ".h") continue;
    const std::string text = text_of(file);
    EXPECT_NE(text.find("#pragma once\n"), std::string::npos) << file;
    EXPECT_TRUE(text.starts_with("// ")) << file << " does not begin with a sentence about its purpose";
  }
}

TEST(Layout, NoNotesToOneselfAndNoPathsOfOneMachine) {
  const std::regex bad(R"(\b(TODO|FIXME|XXX|HACK)\b|(^|[\s"'`(=])/(home|root|work|Users)/)");
  for (const fs::path& file : sources({"pacer", "apps", "bench", "examples"})) {
    std::istringstream lines(text_of(file));
    size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      EXPECT_FALSE(std::regex_search(line, bad)) << file << ":" << number << ": " << line;
    }
  }
}

// A page that the code or another page names must be in the tree.
TEST(Layout, PagesThatAreNamedExist) {
  std::vector<fs::path> texts = sources({"pacer", "apps"});
  for (const std::string folder : {".", "docs"}) {
    for (const auto& entry : fs::directory_iterator(test::source_dir() / folder)) {
      if (entry.path().extension() == ".md") texts.push_back(fs::relative(entry.path(), test::source_dir()));
    }
  }
  const std::regex page(R"((?:\.\./)*[A-Za-z0-9_][A-Za-z0-9_/.-]*\.md\b)");
  for (const fs::path& file : texts) {
    const std::string text = text_of(file);
    for (std::sregex_iterator match(text.begin(), text.end(), page), end; match != end; ++match) {
      const std::string name = match->str();
      const bool found =
          fs::exists(test::source_dir() / file.parent_path() / name) || fs::exists(test::source_dir() / name);
      EXPECT_TRUE(found) << file << " names " << name;
    }
  }
}

// docs/known_failures.md promises a test for every entry.
TEST(Layout, TestsThatThePageOfKnownFailuresNamesExist) {
  std::string all;
  for (const fs::path& file : sources({"tests"})) all += text_of(file);
  const std::string page = read_file(test::source_dir() / "docs" / "known_failures.md");
  const std::regex name(R"(`([A-Za-z0-9]+)\.([A-Za-z0-9]+)`)");
  size_t found = 0;
  for (std::sregex_iterator match(page.begin(), page.end(), name), end; match != end; ++match, ++found) {
    const std::string suite = (*match)[1], test = (*match)[2];
    const size_t at = all.find("(" + suite + ", " + test);
    const size_t behind = at + suite.size() + test.size() + 3;
    EXPECT_TRUE(at != std::string::npos && (all[behind] == ')' || all[behind] == ',')) << match->str();
  }
  EXPECT_GT(found, 60u);
}

}  // namespace
}  // namespace pacer::layout
