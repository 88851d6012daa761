// What one case gave, as the one JSON line that it prints.
#pragma once

#include <optional>
#include <string>

#include "pacer/base/json.h"
#include "pacer/bench/stopclock.h"

namespace pacer::bench {

struct Result {
  Timings timings;
  // Fields of the line where they apply.
  std::optional<double> tokens_per_cpu_s{}, decode_only_tokens_per_cpu_s{}, mb_per_cpu_s{}, conversations_per_cpu_s{};
  std::optional<double> loss{}, grad_norm{};
  std::optional<double> flops{};             // of the products that a step needs, none counted twice
  std::optional<double> bytes{};             // that a step moves to and from memory at least
  OrderedJson work = OrderedJson::object();  // what was done: sizes and counts
};

// The line of a case that was measured.
//   {"bench", "case", "threads", "dtype", "median_s", "min_s", "cpu_median_s", "peak_rss_mb", "delta_rss_mb", ...,
//    "work"}
// dtype is null where nothing is computed in one.
OrderedJson to_json(const Result& result, const std::string& bench, const std::string& name, int threads,
                    const std::string& dtype);

// The line of a case without a figure. status: "oom", "timeout" or "error".
OrderedJson status_json(const std::string& bench, const std::string& name, int threads, const std::string& dtype,
                        const std::string& status, const std::string& message);

}  // namespace pacer::bench
