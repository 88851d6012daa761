#include "pacer/train/run_folder.h"

#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

void touch(const fs::path& file) { std::ofstream(file) << "x"; }

std::string refusal(const fs::path& path) {
  try {
    const RunFolder folder(path);
  } catch (const Error& error) {
    return std::string(error.what()).substr(path.string().size());
  }
  return "accepted";
}

TEST(RunFolder, KeepsASecondOneOutWhileTheFirstLives) {
  const pacer::test::TemporaryFolder temporary;
  const fs::path path = temporary.path() / "deep" / "run";
  {
    const RunFolder first(path);
    EXPECT_EQ(refusal(path), ": another process trains in this folder (process " + std::to_string(::getpid()) + ")");
  }
  EXPECT_EQ(refusal(path), "accepted");
}

TEST(RunFolder, DoesNotSettleAmongOtherFiles) {
  const pacer::test::TemporaryFolder temporary;
  touch(temporary.path() / "thesis.tex");
  EXPECT_EQ(refusal(temporary.path()), ": holds 'thesis.tex' and is not the folder of a run");
  touch(temporary.path() / "plan.json");  // a run with a report or notes beside it
  EXPECT_EQ(refusal(temporary.path()), "accepted");
}

TEST(RunFolder, TakesOverWhatAnInterruptedStartLeft) {
  const pacer::test::TemporaryFolder temporary;
  touch(temporary.path() / "recipe.yaml");
  touch(temporary.path() / "plan.json.tmp-123");
  fs::create_directory(temporary.path() / "checkpoints");
  EXPECT_EQ(refusal(temporary.path()), "accepted");
}

TEST(RunFolder, AFileIsNoFolder) {
  const pacer::test::TemporaryFolder temporary;
  touch(temporary.path() / "run");
  EXPECT_NE(refusal(temporary.path() / "run").find("cannot be created"), std::string::npos);
}

TEST(RunFolder, OffersTheBestDraft) {
  const pacer::test::TemporaryFolder temporary;
  const fs::path checkpoints = temporary.path() / "checkpoints";
  EXPECT_THROW(best_draft(temporary.path()), Error);
  for (const char* step : {"step_000010", "step_000020"}) {
    fs::create_directories(checkpoints / step);
    touch(checkpoints / step / "config.json");
  }
  fs::create_symlink("step_000020", checkpoints / "latest");
  EXPECT_EQ(best_draft(temporary.path()).filename(), "step_000020");
  fs::create_symlink("step_000010", checkpoints / "best");
  EXPECT_EQ(best_draft(temporary.path()).filename(), "step_000010");
  EXPECT_EQ(best_draft(checkpoints / "step_000020"), checkpoints / "step_000020");
}

}  // namespace
}  // namespace pacer::train
