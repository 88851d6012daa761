// Every input of the corpus through its target: seeds, and what the fuzzer once found.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "pacer/base/files.h"
#include "tests/fuzz/targets.h"
#include "tests/support/cost.h"
#include "tests/support/files.h"

namespace pacer::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> corpus(const std::string& name) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(test::source_dir() / "tests" / "fuzz" / "corpus" / name)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class FuzzCorpus : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzCorpus, EveryInputIsReadOrRefused) {
  const Target& target = GetParam();
  const std::vector<fs::path> files = corpus(target.name);
  ASSERT_FALSE(files.empty());
  const Tally before = tally();
  for (const fs::path& file : files) {
    const double start = test::cpu_seconds();
    try {
      target.run(read_file(file));
    } catch (const std::exception& error) {
      ADD_FAILURE() << file << ": " << error.what();
    }
    EXPECT_LT(test::cpu_seconds() - start, 2.0) << file;
  }
  EXPECT_GT(tally().accepted, before.accepted) << "nothing is ever accepted: the target tests nothing";
  EXPECT_GT(tally().refused, before.refused);
}

TEST_P(FuzzCorpus, StaysSmall) {
  uint64_t bytes = 0;
  for (const fs::path& file : corpus(GetParam().name)) bytes += fs::file_size(file);
  EXPECT_LT(bytes, 300'000u);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, ::testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FuzzTargets, AViolationIsNotTakenForARefusal) {
  EXPECT_THROW(accepted([] { require(false, "x"); }), Violation);
  EXPECT_THROW(accepted([] { throw std::runtime_error("not an Error"); }), std::runtime_error);
}

}  // namespace
}  // namespace pacer::fuzz
