#include "pacer/decode/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/base/random.h"
#include "pacer/device/device_memory.h"
#include "pacer/nn/lanes.h"

namespace pacer::decode {
namespace {

std::string number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text += '0';
  return text;
}

at::Tensor host_rows(const at::Tensor& logits) {
  if (logits.dim() < 1 || logits.dim() > 2 || logits.size(-1) < 1 || logits.scalar_type() != at::kFloat) {
    throw Error(ErrorKind::bug, "logits must be f32 of shape [V] or [n, V], found " + std::string(logits.toString()) +
                                    " with " + std::to_string(logits.dim()) + " dimensions");
  }
  const at::Tensor rows = logits.dim() == 1 ? logits.unsqueeze(0) : logits;
  return device::to_host(rows).contiguous();
}

// Sixteen lanes let the compiler use vector maxima; the first place of the maximum is then a plain search.
int64_t first_maximum(std::span<const float> row) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> best;
  best.fill(-std::numeric_limits<float>::infinity());
  std::array<int32_t, kLanes> not_a_number{};
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = row[i + lane];
      best[lane] = x > best[lane] ? x : best[lane];
      not_a_number[lane] |= static_cast<int32_t>(x != x);
    }
  }
  for (; i < row.size(); ++i) {
    best[0] = std::max(best[0], row[i]);
    not_a_number[0] |= static_cast<int32_t>(row[i] != row[i]);
  }
  if (std::any_of(not_a_number.begin(), not_a_number.end(), [](int32_t flag) { return flag != 0; })) {
    throw Error(ErrorKind::data, "the logits of a row hold NaN",
                "the weights are damaged, or the model overflowed in this dtype: try f32");
  }
  const float maximum = *std::max_element(best.begin(), best.end());
  return std::find(row.begin(), row.end(), maximum) - row.begin();
}

// exp(x / temperature - maximum) over its sum. By hand because a softmax of the library wakes its thread pool for a few
// rows, which costs more than the rows.
void softmax(std::span<const float> logits, double temperature, std::span<float> probabilities) {
  const auto scale = static_cast<float>(temperature);
  const auto count = static_cast<int64_t>(logits.size());
  const float* x = logits.data();
  float* y = probabilities.data();
  nn::Lanes best = nn::all(-std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < count; i += nn::kLanes) {
    const int64_t part = std::min(nn::kLanes, count - i);
    best = nn::larger(
        part == nn::kLanes ? nn::load(x + i) : nn::load_part(x + i, part, -std::numeric_limits<float>::infinity()),
        best);
  }
  const float maximum = nn::largest_of(best) / scale;
  double sum = 0.0;
  for (int64_t i = 0; i < count; i += nn::kLanes) {
    const int64_t part = std::min(nn::kLanes, count - i);
    const bool whole = part == nn::kLanes;
    const nn::Lanes row = whole ? nn::load(x + i) : nn::load_part(x + i, part, -std::numeric_limits<float>::infinity());
    const nn::Lanes power = nn::exp_of(row / scale - maximum);
    whole ? nn::store(y + i, power) : nn::store_part(y + i, power, part);
    sum += static_cast<double>(nn::sum_of(power));
  }
  const auto share = static_cast<float>(1.0 / sum);
  for (float& p : probabilities) p *= share;
}

// Zeroes everything outside the top_k and top_p sets of one row and rescales the rest to sum 1.
void keep_likeliest(std::span<float> row, const SamplingOptions& options) {
  // Tokens below (1 - top_p) / V weigh less than 1 - top_p together, so the kept set never needs them: only a small
  // part of a large vocabulary is sorted.
  const double floor = options.top_p < 1.0 ? (1.0 - options.top_p) / static_cast<double>(row.size()) : 0.0;
  std::vector<int64_t> order;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] > 0.0f && (options.top_k > 0 || row[i] >= floor)) order.push_back(static_cast<int64_t>(i));
  }
  const auto likelier = [&](int64_t a, int64_t b) {
    const float pa = row[static_cast<size_t>(a)], pb = row[static_cast<size_t>(b)];
    return pa != pb ? pa > pb : a < b;
  };
  size_t kept = order.size();
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < kept) {
    kept = static_cast<size_t>(options.top_k);
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), likelier);
    order.resize(kept);
  }
  if (options.top_p < 1.0) {
    std::sort(order.begin(), order.end(), likelier);
    double total = 0.0;
    // After top_k the shares are those of the renormalised rest, as when the two cuts are made one after the other.
    if (options.top_k > 0) {
      for (const int64_t id : order) total += row[static_cast<size_t>(id)];
    } else {
      total = std::accumulate(row.begin(), row.end(), 0.0);
    }
    double share = 0.0;
    for (kept = 0; kept < order.size() && share < options.top_p * total; ++kept) {
      share += row[static_cast<size_t>(order[kept])];
    }
    order.resize(std::max<size_t>(kept, 1));
  }
  double sum = 0.0;
  for (const int64_t id : order) sum += row[static_cast<size_t>(id)];
  std::vector<float> values;
  values.reserve(order.size());
  for (const int64_t id : order) values.push_back(static_cast<float>(row[static_cast<size_t>(id)] / sum));
  std::fill(row.begin(), row.end(), 0.0f);
  for (size_t i = 0; i < order.size(); ++i) row[static_cast<size_t>(order[i])] = values[i];
}

template <typename Weight>
int64_t inverse_cumulative(std::span<const Weight> weights, double u) {
  double total = 0.0;
  for (const Weight w : weights) total += static_cast<double>(w);
  if (!(total > 0.0)) throw Error(ErrorKind::bug, "a draw from weights that sum to " + std::to_string(total));
  double sum = 0.0;
  int64_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == Weight{0}) continue;
    sum += static_cast<double>(weights[i]);
    last = static_cast<int64_t>(i);
    if (sum / total > u) return last;
  }
  return last;  // u lies in the last rounding error below 1
}

}  // namespace

void SamplingOptions::check() const {
  if (!std::isfinite(temperature) || temperature < 0.0) {
    throw Error(ErrorKind::usage, "temperature is " + number(temperature) + ", allowed is 0 or more");
  }
  if (top_k < 0) throw Error(ErrorKind::usage, "top_k is " + std::to_string(top_k) + ", allowed is 0 (off) or more");
  if (!(top_p > 0.0 && top_p <= 1.0)) {
    throw Error(ErrorKind::usage, "top_p is " + number(top_p) + ", allowed is above 0 and up to 1");
  }
  if (max_new_tokens < 1) {
    throw Error(ErrorKind::usage, "max_new_tokens is " + std::to_string(max_new_tokens) + ", allowed is 1 or more");
  }
}

double CounterUniforms::uniform(int64_t anchor, int64_t slot, Draw draw) {
  constexpr uint64_t kDraws = 3;
  const RandomStream stream(seed_, Purpose::sampling, static_cast<uint64_t>(anchor), sample_);
  return stream.uniform(static_cast<uint64_t>(slot) * kDraws + static_cast<uint64_t>(draw));
}

at::Tensor without_padding(const at::Tensor& logits, int64_t target_rows, const SamplingOptions& options) {
  if (options.vocabulary <= 0 || options.vocabulary >= target_rows || logits.size(-1) != target_rows) return logits;
  return logits.slice(-1, 0, options.vocabulary);
}

std::vector<int64_t> greedy_tokens(const at::Tensor& logits) {
  const at::Tensor rows = host_rows(logits);
  const auto width = static_cast<size_t>(rows.size(1));
  const float* data = rows.const_data_ptr<float>();
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    tokens.push_back(first_maximum({data + static_cast<size_t>(i) * width, width}));
  }
  return tokens;
}

at::Tensor distribution(const at::Tensor& logits, const SamplingOptions& options) {
  const at::Tensor rows = host_rows(logits);
  // Also the check for NaN, which a softmax would spread over the row without a word.
  const std::vector<int64_t> maxima = greedy_tokens(rows);
  if (options.greedy()) {
    at::Tensor one_hot = at::zeros(rows.sizes(), at::kFloat);
    for (int64_t i = 0; i < rows.size(0); ++i) {
      one_hot.mutable_data_ptr<float>()[i * rows.size(1) + maxima[static_cast<size_t>(i)]] = 1.0f;
    }
    return one_hot.view(logits.sizes());
  }
  const at::Tensor probabilities = at::empty_like(rows);
  const auto width = static_cast<size_t>(rows.size(1));
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const size_t begin = static_cast<size_t>(i) * width;
    const std::span<float> row(probabilities.mutable_data_ptr<float>() + begin, width);
    softmax({rows.const_data_ptr<float>() + begin, width}, options.temperature, row);
    if (options.top_k > 0 || options.top_p < 1.0) keep_likeliest(row, options);
  }
  return probabilities.view(logits.sizes());
}

int64_t draw_token(std::span<const float> weights, double u) { return inverse_cumulative(weights, u); }
int64_t draw_token(std::span<const double> weights, double u) { return inverse_cumulative(weights, u); }

}  // namespace pacer::decode
