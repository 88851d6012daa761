// Charts as inline SVG. Colours come from the style sheet's classes, so they follow light, dark and print.
#pragma once

#include <string>
#include <vector>

#include "pacer/workflow/report/report_data.h"

namespace pacer::workflow {

// A figure with title, legend and lines over steps. More than a few hundred points are averaged in equal groups.
// "" when no curve has a finite point.
std::string curve_chart(const CurveChart& chart);

// Bars for survival and dots for conditional acceptance of each draft of a proposal.
std::string position_chart(const PositionAcceptance& positions);

// Observed against predicted acceptance, with the number of predictions below.
std::string reliability_chart(const CalibrationResult& calibration);

// For each split one bar of the whole width, cut in proportion, with a legend that gives shares and seconds.
std::string split_bars(const std::vector<TimeSplit>& splits);

// Speed-up of each kind beside the baseline, from 0, with a line at 1.
std::string speedup_bars(const std::vector<KindResult>& kinds);

}  // namespace pacer::workflow
