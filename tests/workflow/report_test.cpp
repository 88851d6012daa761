#include "pacer/workflow/report/report.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/workflow/report/axis.h"
#include "pacer/workflow/report/charts.h"
#include "pacer/workflow/report/markup.h"
#include "tests/support/files.h"
#include "tests/workflow/browser.h"
#include "tests/workflow/sample_report.h"

namespace pacer::workflow {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST(ReportMarkup, TextCannotBecomeMarkup) {
  EXPECT_EQ(escaped("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escaped("é 中 😀\n"), "é 中 😀\n");
  EXPECT_EQ(escaped(std::string("a\0b\x1b", 4)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(escaped("\xC0\x80|\xED\xA0\x80|\xE4\xB8"),
            std::string("\xEF\xBF\xBD\xEF\xBF\xBD|\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD|\xEF\xBF\xBD\xEF\xBF\xBD"))
      << "overlong, surrogate, cut off";
}

TEST(ReportMarkup, CoordinatesAreShort) {
  EXPECT_EQ(coordinate(12.3456), "12.35");
  EXPECT_EQ(coordinate(7), "7");
  EXPECT_EQ(coordinate(-0.001), "0");
  EXPECT_EQ(coordinate(std::numeric_limits<double>::quiet_NaN()), "0");
}

RC_GTEST_PROP(ReportAxis, CoversItsDataWithAFewRoundTicks, ()) {
  const double low = *rc::gen::inRange(-100000, 100000) * 1e-3;
  const double width = *rc::gen::inRange(0, 1000000) * 1e-4;
  const Axis axis = nice_axis(low, low + width, 4);
  RC_ASSERT(axis.low <= low + 1e-6 * std::fabs(low) + 0.011 * (axis.high - axis.low));
  RC_ASSERT(axis.high >= low + width - 0.011 * (axis.high - axis.low));
  RC_ASSERT(axis.ticks.size() >= 2 && axis.ticks.size() <= 10);
  RC_ASSERT(tick_labels(axis).size() == axis.ticks.size());
  const std::vector<std::string> labels = tick_labels(axis);
  for (size_t i = 1; i < labels.size(); ++i) RC_ASSERT(labels[i] != labels[i - 1]);
}

TEST(ReportAxis, LabelsHaveTheDigitsThatTheyNeed) {
  EXPECT_EQ(tick_labels(nice_axis(0, 1, 5)), (std::vector<std::string>{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(tick_labels(nice_axis(0, 40000, 4)), (std::vector<std::string>{"0", "10k", "20k", "30k", "40k"}));
  EXPECT_EQ(tick_labels(nice_axis(0, 6e-4, 3)), (std::vector<std::string>{"0", "2e-4", "4e-4", "6e-4"}));
}

TEST(ReportCharts, ACurveKeepsItsPlaceAndItsEnd) {
  const CurveChart chart{.title = "Loss", .curves = {{"train", {0, 50, 100}, {2.0, 1.0, 0.5}}}};
  const std::string drawn = curve_chart(chart);
  // x from 40 to 348, y from 184 (0.5) up to 10 (2.0) in the units of the drawing
  EXPECT_NE(drawn.find("points=\"40,10 194,126 348,184\""), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("train 0.500"), std::string::npos) << "the newest value stands in the legend";
  EXPECT_NE(drawn.find("100 steps"), std::string::npos);
}

TEST(ReportCharts, NumbersThatAreNoneAreLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(curve_chart({.title = "Loss", .curves = {{"train", {1, 2}, {nan, nan}}}}), "");
  EXPECT_EQ(curve_chart({.title = "Loss"}), "");
  const std::string drawn = curve_chart({.title = "Loss", .curves = {{"train", {1, 2, 3}, {1, nan, 2}}}});
  EXPECT_EQ(drawn.find("nan"), std::string::npos);
  EXPECT_NE(drawn.find("<polyline"), std::string::npos);
}

TEST(ReportCharts, ALongCurveIsAveragedNotCut) {
  Curve curve{.name = "train"};
  for (int i = 0; i < 100000; ++i) curve.x.push_back(i), curve.y.push_back(i % 2);
  const std::string drawn = curve_chart({.title = "Loss", .curves = {curve}});
  EXPECT_LT(drawn.size(), 12000u);
  EXPECT_NE(drawn.find("train 0.500"), std::string::npos) << "the mean of the last group, not its last point";
}

TEST(ReportCharts, SharesOfTimeAddUpAndKeepTheirColours) {
  const std::string drawn = split_bars({{"with the draft", {{"draft", 1}, {"verify", 3}}}, {"plain", {{"verify", 8}}}});
  EXPECT_NE(drawn.find("<i class=\"c1\" style=\"width:25%\""), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("<i class=\"c2\" style=\"width:75%\""), std::string::npos);
  EXPECT_NE(drawn.find("<i class=\"c2\" style=\"width:100%\""), std::string::npos) << "verify keeps its colour";
  EXPECT_EQ(split_bars({{"nothing", {{"draft", 0}}}}), "");
}

TEST(Report, ShowsEveryPartOfItsData) {
  const std::string page = render_report(sample_report());
  for (const char* part :
       {"word problems", "1.88×", "2.79", "Acceptance by position", "ECE 0.034", "AUC 0.871", "Brier 0.142", "AMD EPYC",
        "draft.layers", "Where the time goes", "Learning rate", "4 min 52 s", "1.68 – 2.13"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find("class=\"missing\""), std::string::npos);
}

TEST(Report, ADifferentTextIsSeenAtOnce) {
  ReportData data = sample_report();
  EXPECT_NE(render_report(data).find("<b class=\"good\">yes</b>"), std::string::npos);
  data.kinds[2].identical_f32 = false;
  const std::string page = render_report(data);
  EXPECT_NE(page.find("<b class=\"bad\">no</b>"), std::string::npos);
  EXPECT_NE(page.find("1 of 4 kinds differ in f32"), std::string::npos);
}

TEST(Report, SaysWhatIsMissingAndHowToGetIt) {
  const std::string page = render_report({.title = "Empty"});
  EXPECT_EQ(count(page, "class=\"missing\""), 2u);
  EXPECT_NE(page.find("pacer eval"), std::string::npos);
  EXPECT_NE(page.find("pacer train"), std::string::npos);
}

TEST(Report, NeedsNothingFromElsewhereAndRunsNoScript) {
  ReportData data = sample_report();
  data.title = "<script>alert(1)</script>";
  data.recipe = "</pre><img>";
  const std::string page = render_report(data);
  for (const char* forbidden : {"<script", "src=", "href=", "http:", "https:", "url(", "@import", "<img", "<link"}) {
    EXPECT_EQ(page.find(forbidden), std::string::npos) << forbidden;
  }
}

TEST(ReportFiles, AFolderOfARunAndASummaryIsRead) {
  const test::TemporaryFolder folder;
  write_sample_run(folder.path() / "run");
  write_file(folder.path() / "summary.json", sample_summary().dump());
  const ReportData data = read_report(folder.path());
  EXPECT_EQ(data.title, "DSpark draft for model");
  ASSERT_EQ(data.kinds.size(), 2u);
  EXPECT_EQ(data.kinds[0].name, "word problems") << "the trained kind goes first";
  EXPECT_EQ(data.kinds[0].speedup_cpu, sample_summary()["domains"]["word_problems"]["speedup_cpu"].get<double>());
  EXPECT_EQ(data.kinds[1].identical_bf16, std::nullopt) << "null is unknown";
  ASSERT_FALSE(data.training.empty());
  EXPECT_EQ(data.training[0].title, "Loss");
  ASSERT_EQ(data.training[0].curves.size(), 2u);
  EXPECT_EQ(data.training[0].curves[0].y, (std::vector<double>{2.0, 1.5, 1.0}));
  EXPECT_NE(data.recipe.find("block_size"), std::string::npos);
  EXPECT_FALSE(data.machine.empty());
}

TEST(ReportFiles, AnEvaluationAloneGivesKindsAndTheTotal) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "evaluation.json", sample_evaluation().dump());
  const ReportData data = read_report(folder.path());
  ASSERT_EQ(data.kinds.size(), 2u);
  EXPECT_EQ(data.kinds[0].name, "chat");
  EXPECT_EQ(data.kinds[0].speculative_tokens_per_s, 70.0);
  EXPECT_EQ(data.kinds[0].identical_bf16, true);
  EXPECT_EQ(data.kinds[0].identical_f32, std::nullopt) << "it was measured in bf16";
  EXPECT_EQ(data.measured_on, "all kinds together");
  EXPECT_EQ(data.positions->survival, (std::vector<std::optional<double>>{0.5, 0.25, std::nullopt}));
}

TEST(ReportFiles, AnEvaluationCompletesASummary) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "evaluation.json", sample_evaluation().dump());
  write_file(folder.path() / "summary.json", sample_summary().dump());
  const ReportData data = read_report(folder.path());
  ASSERT_EQ(data.kinds.size(), 2u);
  EXPECT_EQ(data.kinds[0].speedup_cpu, 1.9) << "of the summary";
  EXPECT_EQ(data.kinds[0].speedup_low, 1.4) << "of the evaluation";
  EXPECT_EQ(data.measured_on, "word problems");
  EXPECT_EQ(data.positions->survival, (std::vector<std::optional<double>>{0.8, 0.6})) << "of the trained kind";
  ASSERT_EQ(data.times.size(), 2u);
  ASSERT_EQ(data.times[0].parts.size(), 2u) << "phases without time are left out";
  EXPECT_EQ(data.times[0].parts[1].name, "verify");
  EXPECT_EQ(data.times[0].parts[1].seconds, 6.0);
  // bin 3 of two positions: (10 * 0.16 + 30 * 0.18) / 40 and (10 * 0.2 + 30 * 0.1) / 40
  ASSERT_EQ(data.calibration->bins.size(), 1u);
  EXPECT_NEAR(data.calibration->bins[0].predicted, 0.175, 1e-12);
  EXPECT_NEAR(data.calibration->bins[0].observed, 0.125, 1e-12);
  EXPECT_EQ(data.calibration->bins[0].count, 40);
  EXPECT_EQ(data.calibration->ece, 0.05);
}

TEST(ReportFiles, ARunThatIsStillGoingOnIsRead) {
  const test::TemporaryFolder folder;
  write_sample_run(folder.path());
  const std::string whole = read_file(folder.path() / "metrics.jsonl");
  write_file(folder.path() / "metrics.jsonl", whole + R"({"kind": "train", "st)");
  EXPECT_EQ(read_report(folder.path()).training[0].curves[0].y.size(), 3u);
}

TEST(ReportFiles, AStepThatWasWrittenTwiceCountsOnce) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "metrics.jsonl",
             "{\"kind\":\"train\",\"step\":1,\"loss\":3}\n{\"kind\":\"train\",\"step\":2,\"loss\":2}\n"
             "{\"kind\":\"train\",\"step\":2,\"loss\":5}\n{\"kind\":\"train\",\"step\":3,\"loss\":1}\n");
  EXPECT_EQ(read_report(folder.path()).training[0].curves[0].y, (std::vector<double>{3, 5, 1}));
}

TEST(ReportFiles, ErrorsNameFileAndPlace) {
  const test::TemporaryFolder folder;
  const auto message = [&] {
    try {
      read_report(folder.path());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message().find("neither metrics.jsonl nor evaluation.json"), std::string::npos) << message();
  write_file(folder.path() / "metrics.jsonl", "{\"kind\": \"start\"}\noops\n");
  EXPECT_NE(message().find("metrics.jsonl:2"), std::string::npos) << message();
  write_file(folder.path() / "metrics.jsonl", "");
  write_file(folder.path() / "summary.json", R"({"domains": {"chat": {"prompts": "many"}}})");
  EXPECT_NE(message().find("summary.json: domains/chat: prompts is not a number"), std::string::npos) << message();
  EXPECT_THROW(read_report(folder.path() / "missing"), Error);
}

// What a person would see: the browser lays the page out, in both widths, and nothing is wider than the screen.
TEST(ReportBrowser, ThePageFitsAPhoneAndADesktop) {
  PACER_BROWSER_OR_SKIP(browser);
  const test::TemporaryFolder folder;
  // The probe is part of this test only: a report itself runs no script.
  const std::string probe =
      "<script>const d=document.documentElement;const m=[...document.querySelectorAll('main "
      "*')].filter(e=>!e.closest('.scroll,pre,"
      "svg')&&e.getBoundingClientRect().right>innerWidth+1);document.title=JSON.stringify({width:innerWidth,scroll:"
      "d.scrollWidth,wide:m.length,figures:document.querySelectorAll('figure "
      "svg').length,drawn:[...document.querySelectorAll("
      "'figure svg')].filter(s=>s.getBoundingClientRect().height>100).length,ink:getComputedStyle(document.body).color,"
      "paper:getComputedStyle(document.body).backgroundColor})</script>";
  std::string page = render_report(sample_report());
  page.insert(page.rfind("</body>"), probe);
  write_file(folder.path() / "report.html", page);
  for (const int width : {500, 1280}) {  // a headless window is at least 500 wide
    const Json seen = Json::parse(title_in_browser(browser, folder.path() / "report.html", width, /*dark=*/false));
    EXPECT_LE(seen["scroll"], seen["width"]) << "the page scrolls sideways: " << seen;
    EXPECT_EQ(seen["wide"], 0) << seen;
    EXPECT_EQ(seen["figures"], 6) << seen;
    EXPECT_EQ(seen["drawn"], seen["figures"]) << seen;
  }
  const Json light = Json::parse(title_in_browser(browser, folder.path() / "report.html", 1280, false));
  const Json dark = Json::parse(title_in_browser(browser, folder.path() / "report.html", 1280, true));
  EXPECT_NE(light["paper"], dark["paper"]);
  EXPECT_NE(light["ink"], dark["ink"]);
}

}  // namespace
}  // namespace pacer::workflow
