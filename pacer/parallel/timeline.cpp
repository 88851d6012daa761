#include "pacer/parallel/timeline.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "pacer/base/numbers.h"

namespace pacer::parallel {
namespace {

constexpr const char* kRow = "reduce in the row";
constexpr const char* kColumn = "reduce over the rows";
constexpr const char* kPublish = "publish over the rows";
constexpr const char* kAcquire = "acquire";

class Walk {
 public:
  Walk(const ScheduleInput& input, const Mesh& mesh)
      : schedule_(make_schedule(input)), mesh_(mesh), acquired_(input.units), published_(input.units) {}

  Timeline run(size_t units) {
    forward();
    for (size_t call = schedule_.backward.size(); call-- > 0;) follow(schedule_.backward[call], "backward ");
    follow(schedule_.rest, "");
    add_reductions();
    work("rest");
    work("norm");
    for (size_t unit = 0; unit < units; ++unit) {
      work("update " + std::to_string(unit));
      if (mesh_.replicate > 1) published_[unit] = here();
    }
    forward();
    std::stable_sort(out_.messages.begin(), out_.messages.end(),
                     [](const auto& a, const auto& b) { return a.issued < b.issued; });
    return std::move(out_);
  }

 private:
  size_t here() const { return out_.work.size(); }
  void work(const std::string& what) { out_.work.push_back(what); }

  void forward() {
    for (const auto& entries : schedule_.forward) follow(entries, "forward ");
  }

  void follow(const std::vector<ScheduleEntry>& entries, const std::string& direction) {
    for (const ScheduleEntry& entry : entries) {
      switch (entry.action) {
        case Action::start_acquire:
          if (mesh_.shard > 1) arrives(entry.index);
          acquired_[entry.index] = here();
          break;
        case Action::wait_acquire:
          arrives(entry.index);
          if (mesh_.shard > 1) message(kAcquire, entry.index, *acquired_[entry.index]);
          break;
        case Action::compute:
          work(direction + std::to_string(entry.index));
          break;
        case Action::release:
          break;
        case Action::reduce:
          reductions_.push_back({entry.index, here()});
          break;
      }
    }
  }

  // What the owner of a unit published is needed here.
  void arrives(size_t unit) {
    if (published_[unit]) message(kPublish, unit, *published_[unit]);
    published_[unit].reset();
  }

  void message(const char* purpose, size_t unit, size_t issued) {
    out_.messages.push_back({purpose, unit, issued, here()});
  }

  // As Engine does it: a unit goes on over the rows when the next one is handed over, and is waited for at the one
  // after that; what is left at the end is waited for there.
  void add_reductions() {
    const auto at = [&](size_t i) { return i < reductions_.size() ? reductions_[i].second : here(); };
    for (size_t i = 0; i < reductions_.size(); ++i) {
      const size_t unit = reductions_[i].first, onward = mesh_.shard > 1 ? at(i + 1) : at(i);
      if (mesh_.shard > 1) out_.messages.push_back({kRow, unit, at(i), at(i + 1)});
      if (mesh_.replicate > 1) out_.messages.push_back({kColumn, unit, onward, at(i + 2)});
    }
  }

  Schedule schedule_;
  Mesh mesh_;
  std::vector<std::optional<size_t>> acquired_, published_;  // where it was issued
  std::vector<std::pair<size_t, size_t>> reductions_;        // unit, where
  Timeline out_;
};

// --- the picture

constexpr int kColumnWidth = 70, kLineHeight = 19, kLeft = 150, kTop = 34;

struct Colour {
  std::string_view prefix, fill;
};
constexpr std::array<Colour, 9> kColours = {{{"forward", "#cfe3f7"},
                                             {"backward", "#f7dccf"},
                                             {"rest", "#eeeeee"},
                                             {"norm", "#eeeeee"},
                                             {"update", "#d8efd3"},
                                             {kRow, "#e07b39"},
                                             {kColumn, "#b5502b"},
                                             {kPublish, "#4f9a44"},
                                             {kAcquire, "#3a78b5"}}};

std::string_view colour_of(const std::string& what) {
  for (const Colour& colour : kColours) {
    if (what.starts_with(colour.prefix)) return colour.fill;
  }
  return "#cccccc";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string box(double x, double y, double width, double height, std::string_view fill) {
  return "<rect x=\"" + format_fixed(x, 1) + "\" y=\"" + format_fixed(y, 1) + "\" width=\"" + format_fixed(width, 1) +
         "\" height=\"" + format_fixed(height, 1) + "\" rx=\"2\" fill=\"" + std::string(fill) + "\"/>\n";
}

std::string label(double x, double y, const std::string& text, const char* anchor, const char* fill = "#222") {
  return "<text x=\"" + format_fixed(x, 1) + "\" y=\"" + format_fixed(y, 1) + "\" text-anchor=\"" + anchor +
         "\" fill=\"" + fill + "\">" + escaped(text) + "</text>\n";
}

}  // namespace

Timeline make_timeline(const ScheduleInput& input, const Mesh& mesh) { return Walk(input, mesh).run(input.units); }

std::string timeline_svg(const Timeline& timeline, const std::vector<std::string>& units) {
  const auto x = [](size_t place) { return kLeft + static_cast<double>(kColumnWidth) * static_cast<double>(place); };
  const double width = x(timeline.work.size()) + 10;
  double y = kTop + kLineHeight + 8;
  std::string body = label(kLeft - 8, kTop + 13, "this rank", "end");
  for (size_t i = 0; i < timeline.work.size(); ++i) {
    body += box(x(i) + 1, kTop, kColumnWidth - 2, kLineHeight, colour_of(timeline.work[i]));
    body += label(x(i) + kColumnWidth / 2.0, kTop + 13, timeline.work[i], "middle");
  }
  for (const char* purpose : {kAcquire, kRow, kColumn, kPublish}) {
    // Bars of one purpose share a line where they do not meet.
    std::vector<size_t> free_at;
    const double first = y;
    for (const Timeline::Message& message : timeline.messages) {
      if (message.purpose != purpose) continue;
      auto line = std::find_if(free_at.begin(), free_at.end(), [&](size_t end) { return end <= message.issued; });
      if (line == free_at.end()) line = free_at.insert(free_at.end(), 0);
      // One that nothing hides is drawn as a stroke.
      *line = std::max(message.waited, message.issued + 1);
      const double top = first + kLineHeight * static_cast<double>(line - free_at.begin());
      const double length = static_cast<double>(message.waited - message.issued) * kColumnWidth;
      body += box(x(message.issued) + 1, top + 2, std::max(3.0, length - 2), kLineHeight - 4, colour_of(purpose));
      const std::string& unit = units[message.unit];
      body += length > 0 ? label(x(message.issued) + 5, top + 13, unit, "start", "#fff")
                         : label(x(message.issued) + 7, top + 13, unit, "start");
    }
    if (free_at.empty()) continue;
    body += label(kLeft - 8, first + 13, purpose, "end");
    y = first + kLineHeight * static_cast<double>(free_at.size()) + 8;
  }
  const std::string size = format_fixed(width, 0) + "\" height=\"" + format_fixed(y, 0);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size + "\" viewBox=\"0 0 " + format_fixed(width, 0) +
         " " + format_fixed(y, 0) + "\" font-family=\"sans-serif\" font-size=\"10\">\n" +
         box(0, 0, width, y, "#ffffff") +
         label(kLeft, 20,
               "one step and the forward pass behind it; a bar is a message from where it is handed over to "
               "where it is waited for",
               "start") +
         body + "</svg>\n";
}

}  // namespace pacer::parallel
