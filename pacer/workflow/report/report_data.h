// What a report shows, read from files already: values and no opinions about layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pacer::workflow {

struct Curve {
  std::string name{};
  std::vector<double> x{}, y{};  // same length, x ascending
};

struct CurveChart {
  std::string title{};
  std::string note{};           // one short line below the title, may be empty
  std::vector<Curve> curves{};  // curves that have no points are left out
  bool smooth = false;          // draw the points faintly and a moving average over them
  std::optional<double> low{};  // fixed ends of the y axis
  std::optional<double> high{};
};

// What was measured on one kind of prompt. Empty optionals are shown as a dash.
struct KindResult {
  std::string name{};
  bool trained = false;  // the draft saw this kind, though not these prompts
  int64_t prompts = 0;
  std::optional<double> acceptance_length{};            // tokens after the first / rounds
  std::optional<double> speedup_cpu{};                  // plain CPU seconds / speculative CPU seconds
  std::optional<double> speedup_wall{};                 // the same on the wall clock
  std::optional<double> speedup_low{}, speedup_high{};  // speedup_cpu, 5 % and 95 % of resamplings
  std::optional<double> plain_tokens_per_s{}, speculative_tokens_per_s{};
  std::optional<bool> identical_f32{}, identical_bf16{};
  std::optional<double> paced_speedup_cpu{};                               // with drafts only where they pay
  std::optional<double> lookup_acceptance_length{}, lookup_speedup_cpu{};  // the baseline without training
};

struct PositionAcceptance {
  std::vector<std::optional<double>> survival{};     // [K] share of proposals whose drafts 0..k were all accepted
  std::vector<std::optional<double>> conditional{};  // [K] acceptance of draft k given that those before it were
};

struct TimePart {
  std::string name{};
  double seconds = 0;
};

struct TimeSplit {
  std::string name{};  // "speculative", "plain"
  std::vector<TimePart> parts{};
};

struct CalibrationBin {
  double predicted = 0, observed = 0;
  int64_t count = 0;
};

struct CalibrationResult {
  std::optional<double> ece{}, auc{}, brier{};
  std::vector<CalibrationBin> bins{};  // over all positions
};

struct Fact {
  std::string name{}, value{};
};

struct ReportData {
  std::string title{};
  std::string subtitle{};
  std::vector<CurveChart> training{};
  std::vector<KindResult> kinds{};
  std::string measured_on{};  // the kind that the next three are about
  std::optional<PositionAcceptance> positions{};
  std::vector<TimeSplit> times{};
  std::optional<CalibrationResult> calibration{};
  std::vector<Fact> settings{}, machine{}, duration{};
  std::string recipe{};  // the resolved recipe as text
};

}  // namespace pacer::workflow
