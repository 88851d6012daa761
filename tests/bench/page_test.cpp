#include "pacer/bench/page.h"

#include <gtest/gtest.h>

#include "pacer/bench/limits.h"

namespace pacer::bench {
namespace {

OrderedJson line(const std::string& text) { return OrderedJson::parse(text); }

std::vector<OrderedJson> roofline() {
  return {line(R"({"bench": "roofline", "case": "g", "threads": 1, "dtype": "f32", "median_s": 2.0, "cpu_median_s": 2.0,
                   "delta_rss_mb": 1.0, "flops": 400.0, "bytes": 8.0,
                   "work": {"op": "gemm", "gflop_per_cpu_s": 2e-7, "gb_per_cpu_s": 4e-9}})"),
          line(R"({"bench": "roofline", "case": "r", "threads": 1, "dtype": "f32", "median_s": 1.0, "cpu_median_s": 1.0,
                   "delta_rss_mb": 1.0, "bytes": 50.0, "work": {"op": "read", "gb_per_cpu_s": 5e-8}})"),
          line(R"({"bench": "roofline", "case": "e", "threads": 1, "dtype": "f32", "median_s": 1.0, "cpu_median_s": 1.0,
                   "delta_rss_mb": 1.0, "bytes": 9.0, "work": {"op": "exp", "m": 5, "n": 2, "gb_per_cpu_s": 9e-9}})")};
}

OrderedJson step() {
  return line(R"({"bench": "dspark_train", "case": "<a>", "threads": 1, "dtype": "f32", "median_s": 11.0,
                  "cpu_median_s": 10.0, "delta_rss_mb": 3.0, "loss": 2.0, "flops": 600.0, "bytes": 50.0,
                  "work": {"exponentials": 10.0}})");
}

TEST(BenchLimits, AreProductsOverTheirRatePlusBytesOverBandwidthPlusExponentials) {
  const Rates rates = rates_of(roofline());
  EXPECT_EQ(rates.flops.at("f32"), 200);
  EXPECT_EQ(rates.bytes, 50);
  EXPECT_EQ(rates.exponentials.at("f32"), 10);
  EXPECT_DOUBLE_EQ(limit_seconds(step(), rates).value(), 3 + 1 + 1);
  OrderedJson other = step();
  other["dtype"] = "bf16";
  EXPECT_FALSE(limit_seconds(other, rates).has_value()) << "no product was measured in bf16";
  EXPECT_FALSE(limit_seconds(roofline().front(), rates).has_value());
}

TEST(BenchLimits, Bf16IsNoSlowerThanItsWidenedFactors) {
  for (const double seconds : {8.0, 0.5}) {
    std::vector<OrderedJson> lines = roofline();
    lines.push_back(lines.front());
    lines.back()["dtype"] = "bf16";
    lines.back()["cpu_median_s"] = seconds;
    const Rates rates = rates_of(lines);
    EXPECT_EQ(rates.flops.at("bf16"), std::max(200.0, 400.0 / seconds));
    EXPECT_EQ(rates.flops.at("f32"), 200);
  }
}

TEST(BenchPage, ShowsEveryFigureBesideItsLimitAndNeedsNothingElse) {
  std::vector<OrderedJson> lines = roofline();
  lines.push_back(step());
  lines.push_back(line(R"({"bench": "decode", "case": "b", "threads": 1, "dtype": "f32", "status": "oom",
                           "message": "out of memory"})"));
  const std::string page = render_page(lines);
  EXPECT_NE(page.find("<td>&lt;a&gt;</td><td>f32</td><td>1</td><td>10</td><td>5</td>"), std::string::npos) << page;
  EXPECT_NE(page.find("50 %"), std::string::npos) << page;
  EXPECT_NE(page.find("oom: out of memory"), std::string::npos);
  for (const char* outside : {"http:", "https:", "<script", "src=", "@import", "url("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(page.find("machine was busy"), std::string::npos);
}

TEST(BenchPage, SaysWhenTheMachineWasBusy) {
  std::vector<OrderedJson> lines = roofline();
  lines.push_back(step());
  lines.back()["median_s"] = 25.0;
  EXPECT_TRUE(was_disturbed(lines.back()));
  EXPECT_NE(render_page(lines).find("The machine was busy: 1 of 4 lines"), std::string::npos);
  lines.back()["threads"] = 2;
  EXPECT_FALSE(was_disturbed(lines.back())) << "two threads share their CPU time";
}

}  // namespace
}  // namespace pacer::bench
