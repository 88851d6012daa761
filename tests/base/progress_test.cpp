#include "pacer/base/progress.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "pacer/base/logging.h"

namespace pacer {
namespace {

// Collects what is logged, and puts the log back in order afterwards.
class Captured {
 public:
  Captured() {
    set_log_sink([this](LogLevel, std::string_view line) { lines.emplace_back(line); });
  }
  ~Captured() {
    set_log_sink({});
    set_log_level(LogLevel::info);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  std::vector<std::string> lines;
};

TEST(Log, OneCallIsOneLine) {
  Captured log;
  log_info("two\nlines");
  log_warning("look");
  EXPECT_EQ(log.lines, (std::vector<std::string>{"two lines", "warning: look"}));
}

TEST(Log, LevelsFilter) {
  Captured log;
  log_debug("not at the start");
  set_log_level(LogLevel::warning);
  log_info("quiet");
  log_warning("heard");
  set_log_level(LogLevel::debug);
  log_debug("now");
  set_log_level(LogLevel::off);
  log_warning("off");
  EXPECT_EQ(log.lines, (std::vector<std::string>{"warning: heard", "now"}));
}

TEST(Log, ThreadsDoNotMixTheirLines) {
  Captured log;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) log_info(std::string(50, static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(log.lines.size(), 800u);
  for (const std::string& line : log.lines) EXPECT_EQ(line, std::string(50, line[0]));
}

struct Fixture {
  double now = 100;
  std::vector<std::string> plain, bar;
  ProgressOptions options(bool with_bar) {
    return {.bar = with_bar,
            .columns = 60,
            .now = [this] { return now; },
            .write_plain = [this](std::string_view text) { plain.emplace_back(text); },
            .write_bar = [this](std::string_view text) { bar.emplace_back(text); }};
  }
};

TEST(Progress, WithoutATerminalItWritesAPlainLineNowAndThen) {
  Fixture setup;
  Progress progress("training", 200, setup.options(false));
  for (uint64_t step = 1; step <= 100; ++step) {
    setup.now += 0.25;
    progress.update(step, "loss 1.50");
  }
  EXPECT_EQ(setup.plain, (std::vector<std::string>{"training: 40 of 200 steps (20 %), loss 1.50, 40 s left",
                                                   "training: 80 of 200 steps (40 %), loss 1.50, 30 s left"}));
  progress.finish("loss 1.20");
  EXPECT_EQ(setup.plain.back(), "training: 100 steps in 25 s, loss 1.20");
  EXPECT_TRUE(setup.bar.empty());
}

TEST(Progress, AnEarlierRunDoesNotCountForTheSpeed) {
  Fixture setup;
  Progress progress("training", 200, setup.options(false), /*done_before=*/100);
  setup.now += 10;
  progress.update(110);
  EXPECT_EQ(setup.plain, std::vector<std::string>{"training: 110 of 200 steps (55 %), 1 min 30 s left"});
}

TEST(Progress, OnATerminalItDrawsABarThatFitsTheLine) {
  Fixture setup;
  {
    Progress progress("train", 8, setup.options(true));
    setup.now += 1;
    progress.update(4, "loss 1.5");
    const std::string& drawn = setup.bar.back();
    EXPECT_TRUE(drawn.starts_with("\r\033[2Ktrain ███")) << drawn;
    EXPECT_TRUE(drawn.ends_with(" 4/8 steps  1.0 s left  loss 1.5")) << drawn;
    EXPECT_EQ(drawn.find('\n'), std::string::npos);
    const size_t before = setup.bar.size();
    setup.now += 0.01;
    progress.update(5);
    EXPECT_EQ(setup.bar.size(), before) << "not more than ten times a second";
    setup.now += 1;
    progress.update(6, std::string(200, 'n'));
    EXPECT_EQ(setup.bar.back().size(), std::string("\r\033[2K").size() + 59) << "cut to the columns";
  }
  EXPECT_EQ(setup.bar.back(), "\r\033[2K") << "an unfinished bar is taken away";
}

TEST(Progress, AMessageClearsTheBarAndHasItDrawnAgain) {
  Fixture setup;
  Progress progress("train", 8, setup.options(true));
  const size_t before = setup.bar.size();
  ::testing::internal::CaptureStderr();
  log_info("a note");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "a note\n");
  ASSERT_EQ(setup.bar.size(), before + 2);
  EXPECT_EQ(setup.bar[before], "\r\033[2K");
  EXPECT_NE(setup.bar[before + 1].find("train "), std::string::npos);
  progress.finish();
  ::testing::internal::CaptureStderr();
  log_info("later");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "later\n");
  EXPECT_EQ(setup.bar.size(), before + 3) << "only the erasing of finish";
}

}  // namespace
}  // namespace pacer
