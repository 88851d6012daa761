#include "pacer/target/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/where.h>

#include "pacer/base/error.h"

namespace pacer::target {
namespace {

// theta^(2i / D), f32.
at::Tensor wave_lengths(double theta, int64_t head_dim) {
  return at::pow(theta, at::arange(0, head_dim, 2, at::kLong).to(at::kFloat) / head_dim);
}

at::Tensor llama3(const RopeConfig& config, const at::Tensor& frequencies) {
  const auto original = static_cast<double>(config.original_max_position);
  const double low_length = original / config.low_freq_factor, high_length = original / config.high_freq_factor;
  const at::Tensor length = 2 * std::numbers::pi * at::reciprocal(frequencies);
  const at::Tensor stretched = at::where(length > low_length, frequencies / config.factor, frequencies);
  const at::Tensor smooth =
      (original * at::reciprocal(length) - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  const at::Tensor blended = (1 - smooth) * stretched / config.factor + smooth * stretched;
  const at::Tensor medium = at::logical_not(length < high_length) * at::logical_not(length > low_length);
  return at::where(medium, blended, stretched);
}

double magnitude(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

double yarn_attention_factor(const RopeConfig& config) {
  if (config.attention_factor) return *config.attention_factor;
  if (config.mscale.value_or(0) != 0 && config.mscale_all_dim.value_or(0) != 0) {
    return magnitude(config.factor, *config.mscale) / magnitude(config.factor, *config.mscale_all_dim);
  }
  return magnitude(config.factor, 1.0);
}

// Dimensions that turn more often than beta_fast within the original length keep their frequency, those that turn
// less than beta_slow are stretched by the factor, a linear ramp lies between.
at::Tensor yarn(const RopeConfig& config, int64_t head_dim, int64_t original_length) {
  const auto dimension = [&](double rotations) {
    return static_cast<double>(head_dim) *
           std::log(static_cast<double>(original_length) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(config.theta));
  };
  double low = dimension(config.beta_fast), high = dimension(config.beta_slow);
  if (config.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;  // avoids a division by zero, as the reference does
  const at::Tensor ramp = ((at::arange(head_dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor keep = 1 - ramp;
  const at::Tensor lengths = wave_lengths(config.theta, head_dim);
  return at::reciprocal(config.factor * lengths) * (1 - keep) + at::reciprocal(lengths) * keep;
}

}  // namespace

nn::RopeTable rope_table(const RopeConfig& config, int64_t head_dim, int64_t max_position) {
  at::Tensor frequencies = at::reciprocal(wave_lengths(config.theta, head_dim));
  double scaling = 1.0;
  if (config.type == "linear") {
    frequencies = frequencies / config.factor;
  } else if (config.type == "llama3") {
    frequencies = llama3(config, frequencies);
  } else if (config.type == "yarn") {
    const int64_t original = config.original_max_position > 0 ? config.original_max_position : max_position;
    frequencies = yarn(config, head_dim, original);
    scaling = yarn_attention_factor(config);
  } else if (config.type != "default") {
    throw Error(ErrorKind::format,
                "rope_type \"" + config.type + "\" is not supported; allowed: default, linear, llama3, yarn");
  }
  const at::Tensor dense = frequencies.contiguous();
  const float* first = dense.const_data_ptr<float>();
  return nn::RopeTable(std::vector<float>(first, first + dense.numel()), scaling);
}

}  // namespace pacer::target
