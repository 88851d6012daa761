#include "pacer/bench/page.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "pacer/base/machine.h"
#include "pacer/base/numbers.h"
#include "pacer/base/version.h"
#include "pacer/bench/limits.h"
#include "pacer/workflow/report/markup.h"

namespace pacer::bench {
namespace {

using workflow::element;
using workflow::escaped;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --line: #8884; --bar: #3b82f6; --warn: #b45309; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.share { width: 11rem; text-align: left; }
.bar { display: inline-block; height: .7em; background: var(--bar); margin-right: .5em; vertical-align: baseline; }
.note, .busy { color: var(--warn); }
code { font-size: .92em; }
)";

std::string significant(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value >= 1000 ? "%.0f" : "%.3g", value);
  return text.data();
}

std::string cell(const std::string& content) { return element("td", "", content); }

// The rates of a line in its own units.
std::string rate_text(const OrderedJson& line) {
  static const std::array<std::pair<const char*, const char*>, 4> kRates = {
      {{"tokens_per_cpu_s", "tokens/s"},
       {"decode_only_tokens_per_cpu_s", "tokens/s without the prompt"},
       {"mb_per_cpu_s", "MB/s"},
       {"conversations_per_cpu_s", "conversations/s"}}};
  std::string text;
  const auto add = [&](double value, const char* unit) {
    text += (text.empty() ? "" : "; ") + significant(value) + " " + unit;
  };
  for (const auto& [field, unit] : kRates) {
    if (line.contains(field)) add(line.at(field).get<double>(), unit);
  }
  if (line.at("bench") == "roofline") {
    const OrderedJson& work = line.at("work");
    if (work.contains("gflop_per_cpu_s")) add(work.at("gflop_per_cpu_s").get<double>(), "GFLOP/s");
    if (work.contains("g_elements_per_cpu_s")) add(work.at("g_elements_per_cpu_s").get<double>(), "G elements/s");
    if (work.contains("gb_per_cpu_s")) add(work.at("gb_per_cpu_s").get<double>(), "GB/s");
  }
  return text;
}

std::string share_cell(double limit, double cpu) {
  const double share = limit / cpu;
  const int width = static_cast<int>(std::clamp(share, 0.0, 1.0) * 100.0);
  return element(
      "td", "class=\"share\"",
      element("span", "class=\"bar\" style=\"width:" + std::to_string(width) + "px\"", "") + format_percent(share));
}

std::string row(const OrderedJson& line, const Rates& rates) {
  const std::string dtype = line.at("dtype").is_string() ? line.at("dtype").get<std::string>() : "";
  std::string cells = cell(escaped(line.at("case").get<std::string>())) + cell(escaped(dtype)) +
                      cell(std::to_string(line.at("threads").get<int64_t>()));
  if (line.contains("status")) {
    const std::string why = line.at("status").get<std::string>() + ": " + line.at("message").get<std::string>();
    return element("tr", "", cells + element("td", "colspan=\"6\" class=\"note\"", escaped(why)));
  }
  const double cpu = line.at("cpu_median_s").get<double>();
  const std::optional<double> limit = limit_seconds(line, rates);
  cells += cell(significant(cpu));
  cells += cell(limit ? significant(*limit) : "");
  cells += limit ? share_cell(*limit, cpu) : cell("");
  const std::string wall = significant(line.at("median_s").get<double>());
  cells += was_disturbed(line) ? element("td", "class=\"busy\"", wall + " *") : cell(wall);
  const OrderedJson& extra = line.at("delta_rss_mb");
  cells += cell(extra.is_number() ? significant(extra.get<double>()) : "");
  return element("tr", "", cells + cell(escaped(rate_text(line))));
}

constexpr const char* kHeader =
    "<tr><th>case</th><th>dtype</th><th>threads</th><th>CPU s</th><th>limit s</th><th class=\"share\">of the "
    "limit</th><th>wall s</th><th>extra MB</th><th>rate per CPU second</th></tr>";

std::string rates_text(const Rates& rates) {
  std::string text;
  for (const auto& [dtype, rate] : rates.flops) text += significant(rate * 1e-9) + " GFLOP/s in " + dtype + ", ";
  if (rates.bytes > 0) text += significant(rates.bytes * 1e-9) + " GB/s of memory, ";
  for (const auto& [dtype, rate] : rates.exponentials) {
    text += significant(rate * 1e-9) + " G exponentials/s in " + dtype + ", ";
  }
  if (text.empty()) return "This run measured no roofline, so there are no limits.";
  text.resize(text.size() - 2);
  return "Limits are made of what <code>roofline</code> reached in this run: " + text + ".";
}

}  // namespace

bool was_disturbed(const OrderedJson& line) {
  if (line.contains("status") || line.at("threads") != 1) return false;
  return line.at("median_s").get<double>() > 1.2 * line.at("cpu_median_s").get<double>();
}

std::string render_page(const std::vector<OrderedJson>& lines) {
  const Rates rates = rates_of(lines);
  std::vector<std::string> benches;
  for (const OrderedJson& line : lines) {
    const auto bench = line.at("bench").get<std::string>();
    if (std::find(benches.begin(), benches.end(), bench) == benches.end()) benches.push_back(bench);
  }
  const Machine machine = this_machine();
  std::string body = element("h1", "", "What Pacer reaches on this machine");
  body += element("p", "",
                  escaped(machine.processor) + ", " + std::to_string(machine.cores) + " cores, " +
                      format_bytes(machine.memory_bytes) + ", " + escaped(machine.system) + "; pacer " +
                      escaped(version()) + " by " + escaped(compiler()) + ".");
  body += element("p", "", rates_text(rates));
  const auto disturbed = std::count_if(lines.begin(), lines.end(), was_disturbed);
  if (disturbed > 0) {
    body += element("p", "class=\"note\"",
                    "The machine was busy: " + std::to_string(disturbed) + " of " + std::to_string(lines.size()) +
                        " lines (*) waited for the processor. Compare CPU seconds, and only within this page.");
  }
  for (const std::string& bench : benches) {
    std::string rows = kHeader;
    for (const OrderedJson& line : lines) {
      if (line.at("bench") == bench) rows += row(line, rates);
    }
    body += element("h2", "", escaped(bench)) + element("table", "", rows);
  }
  body += element("p", "",
                  "<code>pacer bench --all --html PAGE</code> makes this page; docs/performance.md says what "
                  "each work is. CPU s: median of a timed step, all threads. Extra MB: peak of memory above "
                  "what was resident before the first step.");
  return "<!doctype html>\n" +
         element("html", "lang=\"en\"",
                 element("head", "",
                         "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">" +
                             element("title", "", "pacer bench") + element("style", "", kStyle)) +
                     element("body", "", body)) +
         "\n";
}

}  // namespace pacer::bench
