#include "pacer/bench/result.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace pacer::bench {
namespace {

OrderedJson head(const std::string& bench, const std::string& name, int threads, const std::string& dtype) {
  OrderedJson line = {{"bench", bench}, {"case", name}, {"threads", threads}, {"dtype", nullptr}};
  if (!dtype.empty()) line["dtype"] = dtype;
  return line;
}

// Six significant digits: more only pretend.
double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return std::strtod(text.data(), nullptr);
}

OrderedJson rounded(OrderedJson value) {
  if (value.is_number_float()) return rounded(value.get<double>());
  if (value.is_structured()) {
    for (OrderedJson& entry : value) entry = rounded(std::move(entry));
  }
  return value;
}

void put(OrderedJson& line, const char* name, const std::optional<double>& value) {
  if (value) line[name] = rounded(*value);
}

}  // namespace

OrderedJson to_json(const Result& result, const std::string& bench, const std::string& name, int threads,
                    const std::string& dtype) {
  OrderedJson line = head(bench, name, threads, dtype);
  const Timings& timings = result.timings;
  line["median_s"] = rounded(median(timings.wall));
  line["min_s"] = rounded(*std::min_element(timings.wall.begin(), timings.wall.end()));
  line["cpu_median_s"] = rounded(median(timings.cpu));
  line["peak_rss_mb"] = rounded(timings.peak_rss_mb);
  line["delta_rss_mb"] = nullptr;
  put(line, "delta_rss_mb", timings.delta_rss_mb);
  put(line, "tokens_per_cpu_s", result.tokens_per_cpu_s);
  put(line, "decode_only_tokens_per_cpu_s", result.decode_only_tokens_per_cpu_s);
  put(line, "mb_per_cpu_s", result.mb_per_cpu_s);
  put(line, "conversations_per_cpu_s", result.conversations_per_cpu_s);
  // Values are compared between runs to the last bit that they have.
  if (result.loss) line["loss"] = *result.loss;
  if (result.grad_norm) line["grad_norm"] = *result.grad_norm;
  put(line, "flops", result.flops);
  put(line, "bytes", result.bytes);
  line["work"] = rounded(result.work);
  return line;
}

OrderedJson status_json(const std::string& bench, const std::string& name, int threads, const std::string& dtype,
                        const std::string& status, const std::string& message) {
  OrderedJson line = head(bench, name, threads, dtype);
  line["status"] = status;
  line["message"] = message;
  return line;
}

}  // namespace pacer::bench
