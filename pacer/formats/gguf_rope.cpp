#include "pacer/formats/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/formats/gguf_config.h"

namespace pacer::formats {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& what) {
  throw Error(ErrorKind::format, place + ": " + what,
              "use the Hugging Face folder of the model, whose config.json states its rotary settings");
}

double llama3_divisor(double wavelength, double factor, double low, double high, double context) {
  if (wavelength < context / high) return 1;
  if (wavelength > context / low) return factor;
  const double smooth = (context / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
}

// Published settings are round numbers; what comes out of f32 divisors is off by a few parts in a million.
double tidy(double value) {
  const double rounded = std::round(value * 16) / 16;
  return std::abs(value - rounded) < 1e-3 * std::abs(value) ? rounded : value;
}

}  // namespace

Json llama3_rope_from_divisors(std::span<const float> divisors, double theta, int64_t original_context,
                               const std::string& place) {
  const auto count = divisors.size();
  const auto wavelength = [&](size_t i) {
    return 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(count));
  };
  const double factor = tidy(static_cast<double>(*std::max_element(divisors.begin(), divisors.end())));
  const auto context = static_cast<double>(original_context);

  // In between, s is a line in 1/w:  s = a / w - b  with  a = L/(high - low)  and  b = low/(high - low).
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < count; ++i) {
    const auto divisor = static_cast<double>(divisors[i]);
    if (divisor > 1 + 1e-6 && divisor < factor * (1 - 1e-6)) {
      points.emplace_back(1 / wavelength(i), (1 / divisor - 1 / factor) / (1 - 1 / factor));
    }
  }
  double low = 1, high = 4;  // what all published models use, taken when too few divisors lie in between
  if (points.size() >= 2 && points.front().first != points.back().first) {
    const auto [x0, y0] = points.front();
    const auto [x1, y1] = points.back();
    const double a = (y0 - y1) / (x0 - x1), b = a * x0 - y0;
    low = tidy(b * context / a);
    high = tidy(low + context / a);
  }
  for (size_t i = 0; i < count; ++i) {
    const double expected = llama3_divisor(wavelength(i), factor, low, high, context);
    if (!(std::abs(expected - static_cast<double>(divisors[i])) <= 1e-5 * expected) || !(low > 0) || !(high > low)) {
      refuse(place, "the divisors in rope_freqs.weight follow no rule of the llama3 form");
    }
  }
  return {{"rope_type", "llama3"},  {"rope_theta", theta},      {"factor", factor},
          {"low_freq_factor", low}, {"high_freq_factor", high}, {"original_max_position_embeddings", original_context}};
}

Json gguf_rope_parameters(const GgufFile& file, const std::string& architecture, int64_t head_dim) {
  const std::string prefix = architecture + ".rope.", scaling = prefix + "scaling.";
  const auto number = [&](const std::string& key, double absent) {
    return file.has(key) ? tidy_float(file.number(key)) : absent;
  };
  const double theta = number(prefix + "freq_base", 10000.0);  // llama.cpp's own default
  if (const auto rotated = file.find_integer(prefix + "dimension_count"); rotated && *rotated != head_dim) {
    refuse(file.place(), prefix + "dimension_count is " + std::to_string(*rotated) + ", only whole heads of " +
                             std::to_string(head_dim) + " are supported");
  }
  const double factor = number(scaling + "factor", number(prefix + "scale_linear", 0));
  std::string type = file.find_text(scaling + "type").value_or("linear");
  if (factor == 0 || (factor == 1 && type == "linear")) type = "none";
  for (const char* key : {"attn_factor", "yarn_attn_factor", "yarn_ext_factor"}) {
    // Anything but 1 (or "unset", -1) changes the attention in a way that config.json has no word for.
    const double value = number(scaling + key, 1);
    if (value != 1 && value != -1) refuse(file.place(), scaling + key + " is " + std::to_string(value));
  }

  if (file.has_tensor("rope_freqs.weight")) {
    if (type != "none") refuse(file.place(), "both rope_freqs.weight and rotary scaling of type " + type);
    const std::vector<float> divisors = file.dequantize("rope_freqs.weight");
    if (divisors.size() * 2 != static_cast<size_t>(head_dim)) {
      refuse(file.place(), "rope_freqs.weight holds " + std::to_string(divisors.size()) + " values for heads of " +
                               std::to_string(head_dim));
    }
    const bool trivial = std::all_of(divisors.begin(), divisors.end(), [](float value) { return value == 1.0f; });
    const int64_t context = file.find_integer(scaling + "original_context_length").value_or(8192);
    if (!trivial) return llama3_rope_from_divisors(divisors, theta, context, file.place());
  }
  if (type == "none") return {{"rope_type", "default"}, {"rope_theta", theta}};
  Json rope = {{"rope_type", type}, {"rope_theta", theta}, {"factor", factor}};
  if (type == "yarn") {
    rope["original_max_position_embeddings"] = file.integer(scaling + "original_context_length");
    rope["beta_fast"] = number(scaling + "yarn_beta_fast", 32.0);
    rope["beta_slow"] = number(scaling + "yarn_beta_slow", 1.0);
  } else if (type != "linear") {
    refuse(file.place(), scaling + "type is '" + type + "'; none, linear, yarn and the llama3 form are supported");
  }
  return rope;
}

}  // namespace pacer::formats
