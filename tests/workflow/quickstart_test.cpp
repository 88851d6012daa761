#include "pacer/workflow/quickstart.h"

#include <gtest/gtest.h>

#include <fstream>

#include "pacer/base/files.h"
#include "pacer/train/run_folder.h"
#include "tests/support/files.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;

QuickstartOptions small(const fs::path& folder) {
  QuickstartOptions options;
  options.folder = folder;
  options.wishes = {.minutes = 10, .steps = 110, .prompts = 110, .evaluation_prompts = 3, .full = false};
  return options;
}

// The whole main job on the real model, small: about 90 CPU-seconds.
TEST(Quickstart, TrainsADraftThatIsAcceptedAndChangesNoText) {
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  ASSERT_FALSE(package.empty());
  const test::TemporaryFolder folder;
  const fs::path place = folder.path() / "a folder with spaces";
  const Json summary = run_quickstart(small(place));

  const Json trained = read_json(place / "stages" / "train.json").at("result");
  EXPECT_LT(trained.at("last_loss").get<double>(), 0.8 * trained.at("first_loss").get<double>());
  const Json& domains = summary.at("domains");
  ASSERT_EQ(domains.size(), 4u);
  EXPECT_TRUE(domains.at("word_problems").at("trained").get<bool>());
  EXPECT_GT(domains.at("word_problems").at("acceptance_length").get<double>(), 1.3);
  for (const auto& [kind, domain] : domains.items()) {
    EXPECT_EQ(domain.at("prompts").get<int64_t>(), 3) << kind;
    EXPECT_TRUE(domain.at("identical_f32").get<bool>()) << kind;
    EXPECT_EQ(domain.at("trained").get<bool>(), kind == "word_problems");
    EXPECT_TRUE(domain.at("identical_bf16").get<bool>()) << kind;
    EXPECT_TRUE(domain.at("paced").at("identical_bf16").get<bool>()) << kind;
    EXPECT_GT(domain.at("paced").at("speedup_cpu").get<double>(), 0.0) << kind;
    // Kinds that the draft has not seen are decoded plainly and paced only.
    EXPECT_EQ(domain.at("speedup_cpu").is_null(), kind != "word_problems");
    EXPECT_EQ(domain.at("lookup").at("acceptance_length").is_null(), kind != "word_problems");
  }
  EXPECT_LT(domains.at("word_problems").at("lookup").at("acceptance_length").get<double>(), 1.8);
  EXPECT_EQ(domains.at("word_problems").at("prompts_f32"), domains.at("word_problems").at("prompts"));
  const Json draft = read_json(train::best_draft(place / "run") / "config.json");
  EXPECT_LT(draft.at("draft_vocab_size").get<int64_t>(), 8192) << "answers to word problems have few tokens";
  EXPECT_EQ(read_json(place / "summary.json"), summary);
  EXPECT_NE(quickstart_table(summary).find("word_problems *"), std::string::npos);
  EXPECT_NE(read_file(place / "report.html").find("</html>"), std::string::npos);

  // A second call finds everything done and says the same.
  const auto written = fs::last_write_time(place / "stages" / "evaluate.json");
  EXPECT_EQ(run_quickstart(small(place)), summary);
  EXPECT_EQ(fs::last_write_time(place / "stages" / "evaluate.json"), written);
}

TEST(Quickstart, StopsWhenAskedAndKeepsWhatIsFinished) {
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  ASSERT_FALSE(package.empty());
  const test::TemporaryFolder folder;
  QuickstartOptions options = small(folder.path());
  options.stop_requested = [] { return true; };
  EXPECT_TRUE(run_quickstart(options).is_null());
  EXPECT_TRUE(fs::exists(folder.path() / "stages" / "model.json"));
  EXPECT_FALSE(fs::exists(folder.path() / "summary.json"));
}

}  // namespace
}  // namespace pacer::workflow
