#include "pacer/workflow/report/charts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "pacer/base/numbers.h"
#include "pacer/workflow/report/axis.h"
#include "pacer/workflow/report/markup.h"

namespace pacer::workflow {
namespace {

// Units of the drawing; small, so that its text stays readable when a phone shows it 320 pixels wide.
constexpr double kWidth = 360, kHeight = 210, kTallHeight = 250;
constexpr double kLeft = 40, kRight = 12, kTop = 10, kBottom = 26;
constexpr size_t kMaxPoints = 300;

struct Frame {
  Axis x, y;
  double height = kHeight;
  double at_x(double value) const { return kLeft + x.share(value) * (kWidth - kLeft - kRight); }
  double at_y(double value) const { return height - kBottom - y.share(value) * (height - kTop - kBottom); }
};

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return element("text", "x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" + anchor + "\"",
                 escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return "<line class=\"" + style + "\" x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" +
         coordinate(x2) + "\" y2=\"" + coordinate(y2) + "\"/>";
}

std::string svg(const std::string& label, double height, const std::string& content) {
  return element("svg",
                 "role=\"img\" aria-label=\"" + escaped(label) + "\" viewBox=\"0 0 " + coordinate(kWidth) + " " +
                     coordinate(height) + "\"",
                 content);
}

std::string grid(const Frame& frame) {
  std::string out;
  const std::vector<std::string> labels = tick_labels(frame.y);
  for (size_t i = 0; i < frame.y.ticks.size(); ++i) {
    const double y = frame.at_y(frame.y.ticks[i]);
    out += line(kLeft, y, kWidth - kRight, y, i == 0 ? "axis" : "grid");
    out += text_at(kLeft - 6, y + 3.5, "end", labels[i]);
  }
  return out;
}

std::string x_labels(const Frame& frame) {
  std::string out;
  const std::vector<std::string> labels = tick_labels(frame.x);
  for (size_t i = 0; i < frame.x.ticks.size(); ++i) {
    out += text_at(frame.at_x(frame.x.ticks[i]), frame.height - kBottom + 16, "middle", labels[i]);
  }
  return out;
}

std::string legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out;
  for (const auto& [style, name] : entries) {
    out += element("span", "", "<i class=\"swatch " + style + "\"></i>" + escaped(name));
  }
  return element("div", "class=\"legend\"", out);
}

std::string figure(const std::string& title, const std::string& note, const std::string& body) {
  return element("figure", "",
                 element("figcaption", "",
                         element("b", "", escaped(title)) + (note.empty() ? "" : element("span", "", escaped(note)))) +
                     body);
}

Curve finite_points(const Curve& curve) {
  Curve out{curve.name, {}, {}};
  for (size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
    if (!std::isfinite(curve.x[i]) || !std::isfinite(curve.y[i])) continue;
    out.x.push_back(curve.x[i]);
    out.y.push_back(curve.y[i]);
  }
  return out;
}

Curve thinned(const Curve& curve) {
  const size_t count = curve.x.size();
  if (count <= kMaxPoints) return curve;
  Curve out{curve.name, {}, {}};
  for (size_t group = 0; group < kMaxPoints; ++group) {
    const size_t begin = group * count / kMaxPoints, end = (group + 1) * count / kMaxPoints;
    const auto mean = [&](const std::vector<double>& values) {
      return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(begin),
                             values.begin() + static_cast<std::ptrdiff_t>(end), 0.0) /
             static_cast<double>(end - begin);
    };
    out.x.push_back(mean(curve.x));
    out.y.push_back(mean(curve.y));
  }
  return out;
}

// Mean over a window around each point, a fifteenth of the curve to each side; it does not lag behind as a running
// average would.
Curve smoothed(const Curve& curve) {
  Curve out = curve;
  const size_t reach = std::max<size_t>(1, curve.y.size() / 15);
  for (size_t i = 0; i < curve.y.size(); ++i) {
    const size_t near = std::min({reach, i, curve.y.size() - 1 - i});
    double sum = 0;
    for (size_t j = i - near; j <= i + near; ++j) sum += curve.y[j];
    out.y[i] = sum / static_cast<double>(2 * near + 1);
  }
  return out;
}

std::string polyline(const Frame& frame, const Curve& curve, const std::string& style) {
  std::string points;
  for (size_t i = 0; i < curve.x.size(); ++i) {
    points += (i == 0 ? "" : " ") + coordinate(frame.at_x(curve.x[i])) + "," + coordinate(frame.at_y(curve.y[i]));
  }
  return "<polyline class=\"" + style + "\" points=\"" + points + "\"/>";
}

std::string dot(double x, double y, double radius, const std::string& style, const std::string& title) {
  return element("circle",
                 "class=\"" + style + "\" cx=\"" + coordinate(x) + "\" cy=\"" + coordinate(y) + "\" r=\"" +
                     coordinate(radius) + "\"",
                 element("title", "", escaped(title)));
}

std::string short_number(double value) {
  const double size = std::fabs(value);
  if (size < 1e-3 && size > 1e-12) {
    const auto exponent = static_cast<int>(std::floor(std::log10(size)));
    return format_fixed(value / std::pow(10.0, exponent), 1) + "e" + std::to_string(exponent);
  }
  if (size <= 1e-12) return "0";
  return format_fixed(value, size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0);
}

std::string percent_or_dash(const std::optional<double>& value) { return value ? format_percent(*value) : "–"; }

}  // namespace

std::string curve_chart(const CurveChart& chart) {
  std::vector<Curve> curves;
  Frame frame;
  double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low, y_low = x_low, y_high = -x_low;
  for (const Curve& given : chart.curves) {
    Curve curve = finite_points(given);
    if (curve.x.empty()) continue;
    x_low = std::min(x_low, curve.x.front());
    x_high = std::max(x_high, curve.x.back());
    curve = thinned(curve);
    y_low = std::min(y_low, *std::min_element(curve.y.begin(), curve.y.end()));
    y_high = std::max(y_high, *std::max_element(curve.y.begin(), curve.y.end()));
    curves.push_back(std::move(curve));
  }
  if (curves.empty()) return {};
  // Curves of one run begin together, at 0, although validation comes later; the axis ends where the data end.
  if (x_low < 0.5 * x_high) x_low = 0;
  frame.x = nice_axis(x_low, x_high, 5);
  if (x_high > x_low) {
    frame.x.low = x_low;
    frame.x.high = x_high;
    std::erase_if(frame.x.ticks, [&](double tick) { return tick < x_low || frame.x.share(tick) > 0.82; });
  }
  frame.y = nice_axis(chart.low.value_or(y_low), chart.high.value_or(y_high), 4);

  std::string content = grid(frame) + x_labels(frame);
  const std::string end = format_count(std::llround(x_high)) + " steps";
  content += text_at(kWidth - kRight, frame.height - kBottom + 16, "end", end);
  std::vector<std::pair<std::string, std::string>> names;
  for (size_t i = 0; i < curves.size(); ++i) {
    const std::string colour = "c" + std::to_string(i + 1);
    const bool smooth = chart.smooth && curves[i].x.size() >= 20;
    if (smooth) content += polyline(frame, curves[i], "curve faint " + colour);
    const Curve shown = smooth ? smoothed(curves[i]) : curves[i];
    content += polyline(frame, shown, "curve " + colour);
    // Few points are measurements that one may want to read; many are a curve.
    for (size_t p = shown.x.size() <= 20 ? 0 : shown.x.size() - 1; p < shown.x.size(); ++p) {
      const std::string title = shown.name + ": " + short_number(shown.y[p]) + " at " + short_number(shown.x[p]);
      content += dot(frame.at_x(shown.x[p]), frame.at_y(shown.y[p]), 2.6, "dot " + colour, title);
    }
    names.emplace_back(colour, shown.name + " " + short_number(shown.y.back()));
  }
  return figure(chart.title, chart.note, legend(names) + svg(chart.title, frame.height, content));
}

std::string position_chart(const PositionAcceptance& positions) {
  const size_t count = std::max(positions.survival.size(), positions.conditional.size());
  if (count == 0) return {};
  Frame frame;
  frame.height = kTallHeight;
  frame.x = {0, static_cast<double>(count), {}};
  frame.y = nice_axis(0, 1, 5);
  std::string content;
  for (const double tick : frame.y.ticks) {
    const double y = frame.at_y(tick);
    content += line(kLeft, y, kWidth - kRight, y, tick == 0 ? "axis" : "grid");
    content += text_at(kLeft - 6, y + 3.5, "end", format_fixed(100 * tick, 0) + "%");
  }
  const double width = (kWidth - kLeft - kRight) / static_cast<double>(count);
  const double bar = std::min(width * 0.62, 46.0);
  Curve conditional;
  for (size_t k = 0; k < count; ++k) {
    const double middle = kLeft + (static_cast<double>(k) + 0.5) * width;
    const auto at = [&](const std::vector<std::optional<double>>& values) {
      return k < values.size() ? values[k] : std::nullopt;
    };
    const std::optional<double> survival = at(positions.survival), given = at(positions.conditional);
    const std::string title = "draft " + std::to_string(k + 1) + ": " + percent_or_dash(survival) +
                              " of proposals reach past it, " + percent_or_dash(given) + " once it is reached";
    if (survival) {
      const double top = frame.at_y(*survival);
      content +=
          element("rect",
                  "class=\"fill c1\" rx=\"2\" x=\"" + coordinate(middle - bar / 2) + "\" y=\"" + coordinate(top) +
                      "\" width=\"" + coordinate(bar) + "\" height=\"" + coordinate(frame.at_y(0) - top) + "\"",
                  element("title", "", escaped(title)));
    }
    if (given) {
      conditional.x.push_back((middle - kLeft) / (kWidth - kLeft - kRight) * static_cast<double>(count));
      conditional.y.push_back(*given);
    }
    // With many drafts every label would touch the next.
    if (count <= 12 || k % 4 == 0)
      content += text_at(middle, frame.height - kBottom + 16, "middle", std::to_string(k + 1));
  }
  content += polyline(frame, conditional, "curve c2");
  for (size_t i = 0; i < conditional.x.size(); ++i) {
    content += dot(frame.at_x(conditional.x[i]), frame.at_y(conditional.y[i]), 3.4, "dot c2",
                   format_percent(conditional.y[i]) + " given that the drafts before were accepted");
  }
  return figure("Acceptance by position", "draft 1 is the first one after the last certain token",
                legend({{"c1", "all drafts up to here accepted"}, {"c2", "accepted, given those before"}}) +
                    svg("Acceptance by position", frame.height, content));
}

std::string reliability_chart(const CalibrationResult& calibration) {
  if (calibration.bins.empty()) return {};
  Frame frame;
  frame.height = kTallHeight;
  frame.x = nice_axis(0, 1, 5);
  frame.y = nice_axis(0, 1, 5);
  std::string content =
      grid(frame) + x_labels(frame) + line(frame.at_x(0), frame.at_y(0), frame.at_x(1), frame.at_y(1), "ideal");
  int64_t total = 0, largest = 1;
  for (const CalibrationBin& bin : calibration.bins) {
    total += bin.count;
    largest = std::max(largest, bin.count);
  }
  for (const CalibrationBin& bin : calibration.bins) {
    // The area of a dot is the number of predictions behind it.
    const double radius = 2 + 6 * std::sqrt(static_cast<double>(bin.count) / static_cast<double>(largest));
    content += dot(frame.at_x(bin.predicted), frame.at_y(bin.observed), radius, "bubble c1",
                   "predicted " + format_percent(bin.predicted) + ", accepted " + format_percent(bin.observed) + ", " +
                       format_count(bin.count) + " predictions");
  }
  const auto figure_of = [](const std::optional<double>& value) { return value ? format_fixed(*value, 3) : "–"; };
  const std::string note = "ECE " + figure_of(calibration.ece) + ", AUC " + figure_of(calibration.auc) + ", Brier " +
                           figure_of(calibration.brier) + "; " + format_count(total) + " predictions";
  return figure("Are the draft's probabilities true?", note,
                legend({{"c1", "accepted (up) against predicted (right)"}}) +
                    svg("Observed against predicted acceptance", frame.height, content));
}

std::string split_bars(const std::vector<TimeSplit>& splits) {
  std::vector<std::string> names;  // one colour a name, in all bars
  std::string out;
  for (const TimeSplit& split : splits) {
    double total = 0;
    for (const TimePart& part : split.parts) total += part.seconds;
    if (!(total > 0)) continue;
    std::string bar, entries;
    for (const TimePart& part : split.parts) {
      const auto known = std::find(names.begin(), names.end(), part.name);
      const std::string colour = "c" + std::to_string((known - names.begin()) % 5 + 1);
      if (known == names.end()) names.push_back(part.name);
      const double share = part.seconds / total;
      const std::string title = part.name + ": " + format_duration(part.seconds) + ", " + format_percent(share);
      bar += element(
          "i",
          "class=\"" + colour + "\" style=\"width:" + coordinate(100 * share) + "%\" title=\"" + escaped(title) + "\"",
          "");
      entries +=
          element("span", "",
                  "<i class=\"swatch " + colour + "\"></i>" + escaped(part.name) + " " +
                      element("b", "", escaped(format_percent(share))) + " " + escaped(format_duration(part.seconds)));
    }
    const std::string head = escaped(split.name) + element("span", "", escaped(format_duration(total)));
    out += element("div", "class=\"split\"",
                   element("div", "class=\"split-name\"", head) + element("div", "class=\"stack\"", bar) +
                       element("div", "class=\"legend\"", entries));
  }
  return out;
}

std::string speedup_bars(const std::vector<KindResult>& kinds) {
  double longest = 1;
  for (const KindResult& kind : kinds) {
    longest = std::max({longest, kind.speedup_cpu.value_or(0), kind.paced_speedup_cpu.value_or(0),
                        kind.lookup_speedup_cpu.value_or(0)});
  }
  longest *= 1.04;
  const std::string one = "style=\"left:" + coordinate(100 / longest) + "%\"";
  std::string rows;
  bool paced = false;
  for (const KindResult& kind : kinds) {
    const auto bar = [&](const std::optional<double>& value, const std::string& style) {
      if (!value) return std::string();
      return element("div", "class=\"bar\"",
                     "<i class=\"" + style + "\" style=\"width:" + coordinate(100 * *value / longest) + "%\"></i>");
    };
    const auto number = [](const std::optional<double>& value) { return value ? format_fixed(*value, 2) + "×" : "–"; };
    const std::string tag = kind.trained ? element("span", "class=\"tag\"", "trained") : "";
    rows += element("div", "class=\"kind\"", escaped(kind.name) + tag);
    rows += element("div", "class=\"bars\"",
                    element("i", "class=\"one\" " + one, "") + bar(kind.speedup_cpu, "c1") +
                        bar(kind.paced_speedup_cpu, "c3") + bar(kind.lookup_speedup_cpu, "c5"));
    std::string values = element("b", "", number(kind.speedup_cpu));
    if (kind.paced_speedup_cpu) values += element("span", "", number(kind.paced_speedup_cpu));
    rows += element("div", "class=\"value\"", values + element("span", "", number(kind.lookup_speedup_cpu)));
    paced |= kind.paced_speedup_cpu.has_value();
  }
  std::vector<std::pair<std::string, std::string>> entries = {{"c1", "with the draft"}};
  if (paced) entries.emplace_back("c3", "with the draft where it pays");
  entries.insert(entries.end(), {{"c5", "prompt lookup, no training"}, {"tick", "1× = plain decoding"}});
  return element("div", "class=\"speedups\"", rows) + legend(entries);
}

}  // namespace pacer::workflow
