#include "pacer/bench/limits.h"

#include <algorithm>

namespace pacer::bench {
namespace {

double number(const OrderedJson& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

}  // namespace

Rates rates_of(const std::vector<OrderedJson>& lines) {
  Rates rates;
  for (const OrderedJson& line : lines) {
    const double cpu = number(line, "cpu_median_s");
    if (line.value("bench", "") != "roofline" || !(cpu > 0)) continue;
    const OrderedJson& work = line.at("work");
    const std::string op = work.value("op", ""), dtype = line.value("dtype", "");
    if (op == "gemm") rates.flops[dtype] = std::max(rates.flops[dtype], number(line, "flops") / cpu);
    if (op == "copy" || op == "read") rates.bytes = std::max(rates.bytes, number(line, "bytes") / cpu);
    if (op == "exp") {
      rates.exponentials[dtype] = std::max(rates.exponentials[dtype], number(work, "m") * number(work, "n") / cpu);
    }
  }
  // Factors in bf16 can be widened: where its own instructions are slow, the ones for f32 are its limit.
  if (rates.flops.contains("bf16") && rates.flops.contains("f32")) {
    rates.flops["bf16"] = std::max(rates.flops["bf16"], rates.flops["f32"]);
  }
  return rates;
}

std::optional<double> limit_seconds(const OrderedJson& line, const Rates& rates) {
  const double flops = number(line, "flops"), bytes = number(line, "bytes");
  if (line.contains("status") || line.value("bench", "") == "roofline" || (flops == 0 && bytes == 0)) return {};
  double seconds = 0;
  const auto add = [&](double amount, double rate) {
    if (amount == 0) return true;
    if (!(rate > 0)) return false;
    seconds += amount / rate;
    return true;
  };
  const auto rate_of = [](const std::map<std::string, double>& by_dtype, const std::string& dtype) {
    const auto found = by_dtype.find(dtype);
    return found == by_dtype.end() ? 0.0 : found->second;
  };
  const std::string dtype = line.at("dtype").is_string() ? line.at("dtype").get<std::string>() : "";
  const double exponentials = number(line.at("work"), "exponentials");
  // Logits are f32 in every dtype; a run without f32 has only the rate of its own dtype to go by.
  const double f32 = rate_of(rates.exponentials, "f32");
  if (!add(flops, rate_of(rates.flops, dtype)) || !add(bytes, rates.bytes) ||
      !add(exponentials, f32 > 0 ? f32 : rate_of(rates.exponentials, dtype))) {
    return {};
  }
  return seconds;
}

}  // namespace pacer::bench
