#include "pacer/workflow/report/report.h"

#include <algorithm>

#include "pacer/base/numbers.h"
#include "pacer/base/version.h"
#include "pacer/workflow/report/charts.h"
#include "pacer/workflow/report/markup.h"
#include "pacer/workflow/report/style.h"

namespace pacer::workflow {
namespace {

std::string missing(const std::string& what, const std::string& command) {
  return element("div", "class=\"missing\"", escaped(what) + " " + element("code", "", escaped(command)));
}

std::string number(const std::optional<double>& value, int digits, const std::string& unit = {}) {
  if (!value) return element("span", "class=\"none\"", "–");
  return escaped(format_fixed(*value, digits) + unit);
}

std::string verdict(const std::optional<bool>& same) {
  if (!same) return element("span", "class=\"none\"", "–");
  return *same ? element("span", "class=\"yes\"", "yes") : element("span", "class=\"no\"", "no");
}

std::string tile(const std::string& name, const std::string& value, const std::string& below, const char* style = "") {
  const std::string attributes = *style == '\0' ? std::string() : "class=\"" + std::string(style) + "\"";
  return element("div", "class=\"tile\"",
                 element("span", "", escaped(name)) + element("b", attributes, escaped(value)) +
                     element("span", "", escaped(below)));
}

// The kind that the draft was trained on; the first one where none is marked.
const KindResult* main_kind(const ReportData& data) {
  for (const KindResult& kind : data.kinds) {
    if (kind.trained) return &kind;
  }
  return data.kinds.empty() ? nullptr : &data.kinds.front();
}

std::string tiles(const ReportData& data) {
  std::string out;
  if (const KindResult* kind = main_kind(data)) {
    const std::string on = "on " + kind->name;
    if (kind->speedup_cpu) out += tile("Speed-up, CPU time", format_fixed(*kind->speedup_cpu, 2) + "×", on);
    if (kind->acceptance_length) {
      out += tile("Tokens per pass of the target", format_fixed(*kind->acceptance_length, 2), on);
    }
    // One different text anywhere is what a reader must see first.
    size_t compared = 0, different = 0;
    for (const KindResult& each : data.kinds) {
      compared += each.identical_f32 ? 1 : 0;
      different += each.identical_f32 && !*each.identical_f32 ? 1 : 0;
    }
    if (compared > 0) {
      out +=
          tile("Same text as plain decoding", different == 0 ? "yes" : "no",
               different == 0 ? "f32, every prompt that was compared"
                              : std::to_string(different) + " of " + std::to_string(compared) + " kinds differ in f32",
               different == 0 ? "good" : "bad");
    }
  }
  for (const Fact& fact : data.duration) out += tile(fact.name, fact.value, "");
  return out.empty() ? out : element("div", "class=\"tiles\"", out);
}

std::string kinds_table(const std::vector<KindResult>& kinds) {
  const auto any = [&](auto field) { return std::any_of(kinds.begin(), kinds.end(), field); };
  const bool rates = any([](const KindResult& k) { return k.plain_tokens_per_s || k.speculative_tokens_per_s; });
  const bool spread = any([](const KindResult& k) { return k.speedup_low && k.speedup_high; });
  const bool half = any([](const KindResult& k) { return k.identical_bf16.has_value(); });
  const bool paced = any([](const KindResult& k) { return k.paced_speedup_cpu.has_value(); });
  std::string head = "<th>Kind</th><th>Prompts</th><th>Acceptance<br>length</th><th>Speed-up<br>CPU</th>";
  if (spread) head += "<th>5 % to<br>95 %</th>";
  head += "<th>Speed-up<br>wall</th>";
  if (rates) head += "<th>Tokens/s<br>plain</th><th>Tokens/s<br>with draft</th>";
  head += "<th>Same text<br>f32</th>";
  if (half) head += "<th>Same text<br>bf16</th>";
  if (paced) head += "<th>Speed-up<br>paced</th>";
  head += "<th>Lookup<br>length</th><th>Lookup<br>speed-up</th>";
  std::string rows = element("tr", "", head);
  for (const KindResult& kind : kinds) {
    std::string row = element("td", "", escaped(kind.name)) + element("td", "", format_count(kind.prompts));
    row += element("td", "", number(kind.acceptance_length, 2)) + element("td", "", number(kind.speedup_cpu, 2, "×"));
    if (spread) {
      row += element("td", "",
                     kind.speedup_low && kind.speedup_high
                         ? escaped(format_fixed(*kind.speedup_low, 2) + " – " + format_fixed(*kind.speedup_high, 2))
                         : element("span", "class=\"none\"", "–"));
    }
    row += element("td", "", number(kind.speedup_wall, 2, "×"));
    if (rates) {
      row += element("td", "", number(kind.plain_tokens_per_s, 1));
      row += element("td", "", number(kind.speculative_tokens_per_s, 1));
    }
    row += element("td", "", verdict(kind.identical_f32));
    if (half) row += element("td", "", verdict(kind.identical_bf16));
    if (paced) row += element("td", "", number(kind.paced_speedup_cpu, 2, "×"));
    row += element("td", "", number(kind.lookup_acceptance_length, 2));
    row += element("td", "", number(kind.lookup_speedup_cpu, 2, "×"));
    rows += element("tr", "", row);
  }
  return element("div", "class=\"scroll\"", element("table", "", rows));
}

std::string speed_section(const ReportData& data) {
  std::string out = element("h2", "", "What the draft is worth");
  if (data.kinds.empty()) {
    return out + missing(
                     "No evaluation in this folder. Speed-up, acceptance by position, the split of the time and "
                     "calibration are measured by",
                     "pacer eval --target TARGET --draft DRAFT --out RUN/evaluation.json");
  }
  out += element("div", "class=\"card\"", speedup_bars(data.kinds));
  out += element(
      "div", "class=\"card\"",
      kinds_table(data.kinds) +
          element(
              "p", "class=\"hint\" style=\"margin:12px 0 0\"",
              "Speed-up is the time of plain decoding divided by the time with the draft, over the same "
              "prompts, prefill "
              "included on both sides. Acceptance length is the number of tokens after the first per "
              "pass of the target; "
              "1 would be plain decoding. Paced: drafts only where they pay, as <code>pacer generate</code> decodes. "
              "Prompt lookup copies from the prompt and needs no training. The text must be the same in "
              "f32 and in bf16."));
  return out;
}

std::string measured_on(const ReportData& data) {
  return data.measured_on.empty() ? std::string()
                                  : element("p", "class=\"lead\"", "Measured on " + escaped(data.measured_on) + ".");
}

std::string acceptance_section(const ReportData& data) {
  std::string charts;
  if (data.positions) charts += position_chart(*data.positions);
  if (data.calibration) charts += reliability_chart(*data.calibration);
  if (charts.empty()) return {};  // the section before says that there was no evaluation
  std::string out = element("h2", "", "How far the draft can be trusted") + measured_on(data) +
                    element("div", "class=\"grid\"", charts);
  if (!data.calibration) {
    out += missing("No calibration: this draft has no confidence head. It is trained with", "draft.confidence=true");
  }
  return out;
}

std::string time_section(const ReportData& data) {
  const std::string bars = split_bars(data.times);
  if (bars.empty()) return {};
  return element("h2", "", "Where the time goes") + measured_on(data) + element("div", "class=\"card\"", bars);
}

std::string training_section(const ReportData& data) {
  std::string charts;
  for (const CurveChart& chart : data.training) charts += curve_chart(chart);
  return element("h2", "", "Training") +
         (charts.empty() ? missing("No metrics.jsonl in this folder. It is written by", "pacer train -c recipe.yaml")
                         : element("div", "class=\"grid\"", charts));
}

std::string facts(const std::string& title, const std::vector<Fact>& list) {
  if (list.empty()) return {};
  std::string rows;
  for (const Fact& fact : list) rows += element("dt", "", escaped(fact.name)) + element("dd", "", escaped(fact.value));
  return element("h2", "", escaped(title)) + element("div", "class=\"card\"", element("dl", "", rows));
}

}  // namespace

std::string render_report(const ReportData& data) {
  std::string body = element("h1", "", escaped(data.title));
  if (!data.subtitle.empty()) body += element("p", "class=\"lead\"", escaped(data.subtitle));
  body += tiles(data);
  body += speed_section(data) + acceptance_section(data) + time_section(data) + training_section(data);
  body += facts("Settings", data.settings) + facts("Machine", data.machine);
  if (!data.recipe.empty()) {
    body +=
        element("h2", "", "Recipe") + element("div", "class=\"card long\"", element("pre", "", escaped(data.recipe)));
  }
  body += element("footer", "", "Made by Pacer " + escaped(version()) + ".");
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         element("title", "", escaped(data.title)) + "\n" + element("style", "", report_style()) +
         "\n</head>\n<body>\n" + element("main", "", body) + "\n</body>\n</html>\n";
}

}  // namespace pacer::workflow
