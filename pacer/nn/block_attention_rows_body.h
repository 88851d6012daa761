// Bodies of block_attention_rows.h, compiled once per instruction set; include only from block_attention_rows_*.cpp.
#pragma once

#include <cmath>
#include <cstring>
#include <initializer_list>

#include "pacer/nn/block_attention_rows.h"
#include "pacer/nn/lanes.h"

namespace pacer::nn::detail {
namespace {

constexpr float kLowest = -3.0e38f;

float prefix(const PrefixRow& row) {
  float* x = row.scores;
  const int64_t begin = row.begin, end = row.end;
  if (end <= begin) {
    std::memset(x, 0, static_cast<size_t>(row.n) * sizeof(float));
    return 1.0f;
  }
  Lanes best = all(kLowest);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) best = larger(best, load(x + i) * row.scale);
  if (i < end) {
    const Lanes last = load_part(x + i, end - i, 0.0f) * row.scale;
    float part[kLanes];
    store(part, last);
    best = larger(best, load_part(part, end - i, kLowest));
  }
  const float before = *row.max;
  const float max = std::fmax(before, largest_of(best));
  Lanes total{};
  for (i = begin; i + kLanes <= end; i += kLanes) {
    const Lanes e = exp_of(load(x + i) * row.scale - max);
    store(x + i, e);
    total += e;
  }
  float rest = 0.0f;
  if (i < end) {
    float part[kLanes];
    store(part, exp_of(load_part(x + i, end - i, 0.0f) * row.scale - max));
    for (int64_t lane = 0; lane < end - i; ++lane) x[i + lane] = part[lane], rest += part[lane];
  }
  std::memset(x, 0, static_cast<size_t>(begin) * sizeof(float));
  std::memset(x + end, 0, static_cast<size_t>(row.n - end) * sizeof(float));
  const float factor = std::exp(before - max);
  *row.sum = *row.sum * factor + (sum_of(total) + rest);
  *row.max = max;
  return factor;
}

void prefix_backward(const PrefixRowBackward& row) {
  float *x = row.scores, *d = row.d_scores;
  const int64_t begin = row.begin < row.end ? row.begin : row.end, end = row.end;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const Lanes p = exp_of(load(x + i) * row.scale - row.log_sum);
    store(x + i, p);
    store(d + i, p * (load(d + i) - row.delta) * row.scale);
  }
  if (i < end) {
    const int64_t left = end - i;
    const Lanes p = exp_of(load_part(x + i, left, 0.0f) * row.scale - row.log_sum);
    store_part(x + i, p, left);
    store_part(d + i, p * (load_part(d + i, left, 0.0f) - row.delta) * row.scale, left);
  }
  for (float* values : {x, d}) {
    std::memset(values, 0, static_cast<size_t>(begin) * sizeof(float));
    std::memset(values + end, 0, static_cast<size_t>(row.n - end) * sizeof(float));
  }
}

float dot(const float* a, const float* b, int64_t n) { return dot_of(a, b, n); }

// y = y * factor + x * weight
void blend(float* y, float factor, const float* x, float weight, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, load(y + i) * factor + load(x + i) * weight);
  for (; i < n; ++i) y[i] = y[i] * factor + x[i] * weight;
}

void own(const OwnTile& tile, const OwnTileForward& forward) {
  const int64_t width = tile.width;
  for (int64_t slot = 0; slot < tile.slots; ++slot) {
    const int64_t seen = tile.causal ? slot + 1 : tile.slots;
    for (int64_t group = 0; group < tile.groups; ++group) {
      const int64_t row = slot * tile.groups + group;
      const float* q = tile.q + row * width;
      float* out = forward.out + row * width;
      float max = forward.max[row], sum = forward.sum[row];
      for (int64_t j = 0; j < seen; ++j) {
        const float score = dot(q, tile.k + j * width, width) * tile.scale;
        const float above = std::fmax(max, score);
        const float factor = std::exp(max - above), weight = std::exp(score - above);
        blend(out, factor, tile.v + j * width, weight, width);
        sum = sum * factor + weight;
        max = above;
      }
      const float scale = 1.0f / sum;
      for (int64_t i = 0; i < width; ++i) out[i] *= scale;
      forward.max[row] = max + std::log(sum);
    }
  }
}

void own_backward(const OwnTile& tile, const OwnTileBackward& backward) {
  const int64_t width = tile.width;
  for (int64_t slot = 0; slot < tile.slots; ++slot) {
    const int64_t seen = tile.causal ? slot + 1 : tile.slots;
    for (int64_t group = 0; group < tile.groups; ++group) {
      const int64_t row = slot * tile.groups + group;
      const float *q = tile.q + row * width, *d_out = backward.d_out + row * width;
      for (int64_t j = 0; j < seen; ++j) {
        const float *k = tile.k + j * width, *v = tile.v + j * width;
        const float p = std::exp(dot(q, k, width) * tile.scale - backward.log_sum[row]);
        const float d_score = p * (dot(d_out, v, width) - backward.delta[row]) * tile.scale;
        blend(backward.d_q + row * width, 1.0f, k, d_score, width);
        blend(backward.d_k + j * width, 1.0f, q, d_score, width);
        blend(backward.d_v + j * width, 1.0f, d_out, p, width);
      }
    }
  }
}

constexpr BlockRowKernels kKernels{prefix, prefix_backward, own, own_backward, dot};

}  // namespace
}  // namespace pacer::nn::detail
