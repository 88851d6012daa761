// How fast a work could be at most on the machine that was measured in the same run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::bench {

// The best rates among the lines of `roofline`, per CPU second.
struct Rates {
  std::map<std::string, double> flops;         // by dtype
  std::map<std::string, double> exponentials;  // by dtype
  double bytes = 0;                            // 0: not measured
};
Rates rates_of(const std::vector<OrderedJson>& lines);

// flops / rate at the line's dtype + bytes / bandwidth + exponentials (`work.exponentials`, taken in f32) / rate: the
// CPU seconds that nothing on this machine could undercut. Empty for lines that state none of them (a tokenizer, a
// start, a roofline itself) and where a rate was not measured.
std::optional<double> limit_seconds(const OrderedJson& line, const Rates& rates);

}  // namespace pacer::bench
