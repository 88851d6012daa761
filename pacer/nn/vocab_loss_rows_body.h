// Bodies of vocab_loss_rows.h, compiled once per instruction set; include only from vocab_loss_rows_*.cpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "pacer/nn/lanes.h"
#include "pacer/nn/vocab_loss_rows.h"

namespace pacer::nn::detail {
namespace {

constexpr float kLowest = -3.0e38f;

float row_max(const float* x, int64_t n) {
  Lanes a = all(kLowest), b = a;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) a = larger(a, load(x + i)), b = larger(b, load(x + i + kLanes));
  for (; i + kLanes <= n; i += kLanes) a = larger(a, load(x + i));
  if (i < n) a = larger(a, load_part(x + i, n - i, kLowest));
  return largest_of(larger(a, b));
}

// x += bias; returns the largest.
float add_and_max(float* x, const float* bias, int64_t n) {
  Lanes a = all(kLowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes z = load(x + i) + load(bias + i);
    store(x + i, z);
    a = larger(a, z);
  }
  if (i < n) {
    const Lanes z = load_part(x + i, n - i, kLowest) + load_part(bias + i, n - i, 0.0f);
    store_part(x + i, z, n - i);
    a = larger(a, z);
  }
  return largest_of(a);
}

void extend(const float* x, int64_t n, RunningSum& running) {
  const float max = std::fmax(running.max, row_max(x, n));
  Lanes sum{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum += exp_of(load(x + i) - max);
  if (i < n) sum += exp_of(load_part(x + i, n - i, kLowest) - max);
  running.sum = running.sum * std::exp(running.max - max) + sum_of(sum);
  running.max = max;
}

// As draft() computes q: equal logits give equal bits, and so an L1 distance of exactly 0.
void probabilities(float* x, int64_t n, const RunningSum& of) {
  const float scale = 1.0f / of.sum;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, exp_of(load(x + i) - of.max) * scale);
  if (i < n) store_part(x + i, exp_of(load_part(x + i, n - i, kLowest) - of.max) * scale, n - i);
}

float sum(const float* x, int64_t n) {
  Lanes total{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) total += load(x + i);
  if (i < n) total += load_part(x + i, n - i, 0.0f);
  return sum_of(total);
}

// exp(x - max) in place; returns the sum.
float exponentials(float* x, int64_t n, float max) {
  Lanes total{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes e = exp_of(load(x + i) - max);
    store(x + i, e);
    total += e;
  }
  if (i < n) {
    const Lanes e = exp_of(load_part(x + i, n - i, kLowest) - max);
    store_part(x + i, e, n - i);
    total += e;
  }
  return sum_of(total);
}

PACER_LANES Lanes sign(const Lanes& x) { return (x > 0.0f ? all(1.0f) : Lanes{}) - (x < 0.0f ? all(1.0f) : Lanes{}); }

// Distances of q = e * scale to p over a row, and sum of sign(q - p) q.
struct Distance {
  float l1, signed_mass;
};
Distance distance(const float* e, const float* p, int64_t n, float scale) {
  Lanes l1{}, mass{};
  int64_t i = 0;
  const auto step = [&](const Lanes& ei, const Lanes& pi) {
    const Lanes q = ei * scale, d = q - pi;
    l1 += d > 0.0f ? d : -d;
    mass += sign(d) * q;
  };
  for (; i + kLanes <= n; i += kLanes) step(load(e + i), load(p + i));
  if (i < n) step(load_part(e + i, n - i, 0.0f), load_part(p + i, n - i, 0.0f));
  return {sum_of(l1), sum_of(mass)};
}

// Writes the gradient row in place of e; value(e_i, p_i) is that of a column. A bf16 row is half as long, so its writes
// never pass the reads.
template <typename Value>
PACER_LANES void write_gradient(const DraftRow& row, const float* p, const Value& value) {
  float* e = row.logits;
  auto* narrow = reinterpret_cast<uint16_t*>(e);
  const auto put = [&](int64_t i, const Lanes& g) {
    row.bf16 ? store_some(narrow + i, g, kLanes) : store(e + i, g);
    if (row.sum != nullptr) store(row.sum + i, row.first ? g : load(row.sum + i) + g);
  };
  int64_t i = 0;
  for (; i + kLanes <= row.n; i += kLanes) put(i, value(load(e + i), load(p + i)));
  if (i < row.n) {
    const int64_t left = row.n - i;
    const Lanes g = value(load_part(e + i, left, 0.0f), load_part(p + i, left, 0.0f));
    row.bf16 ? store_some(narrow + i, g, left) : store_part(e + i, g, left);
    if (row.sum != nullptr) store_part(row.sum + i, row.first ? g : load_part(row.sum + i, left, 0.0f) + g, left);
  }
}

void gradient(const DraftRow& row, float scale, float signed_mass) {
  if (row.soft) {
    const float pull = row.ce_scale * (1.0f - row.teacher_outside);
    write_gradient(row, row.teacher, [&](const Lanes& ei, const Lanes& pi) {
      const Lanes q = ei * scale;
      return q * (pull + row.l1_scale * (sign(q - pi) - signed_mass)) - pi * row.ce_scale;
    });
    return;
  }
  const auto value = [&](const Lanes& ei, const Lanes& pi) {
    const Lanes q = ei * scale;
    return row.teacher == nullptr ? q * row.ce_scale : q * (row.ce_scale + row.l1_scale * (sign(q - pi) - signed_mass));
  };
  float* e = row.logits;
  const float* p = row.teacher == nullptr ? e : row.teacher;
  float at_label = 0.0f;
  if (row.label >= 0) {  // computed as its neighbours are, before they are overwritten
    const Lanes g = value(all(e[row.label]), all(p[row.label])) - row.ce_scale;
    at_label = g[0];
  }
  write_gradient(row, p, value);
  if (row.label >= 0) {
    auto* narrow = reinterpret_cast<uint16_t*>(e);
    row.bf16 ? store_some(narrow + row.label, all(at_label), 1) : store_part(e + row.label, all(at_label), 1);
    if (row.sum != nullptr) row.sum[row.label] -= row.ce_scale;
  }
}

void narrow_row(const float* x, int64_t n, uint16_t* to) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_some(to + i, load(x + i), kLanes);
  if (i < n) store_some(to + i, load_part(x + i, n - i, 0.0f), n - i);
}

DraftRowTerms draft(const DraftRow& row) {
  DraftRowTerms terms;
  const float max = row.bias == nullptr ? row_max(row.logits, row.n) : add_and_max(row.logits, row.bias, row.n);
  const float at_label = row.label < 0 ? 0.0f : row.logits[row.label];
  const float expected = row.soft ? dot_of(row.teacher, row.logits, row.n) : at_label;
  const float total = exponentials(row.logits, row.n, max);
  const float scale = 1.0f / total;
  if (row.label >= 0) {
    const float mass = row.soft ? 1.0f - row.teacher_outside : 1.0f;
    terms.ce = mass * (max + std::log(total)) - expected;
    terms.correct = at_label >= max;
  }
  Distance between{0.0f, 0.0f};
  if (row.teacher != nullptr) {
    between = distance(row.logits, row.teacher, row.n, scale);
    terms.l1 = between.l1 + row.teacher_outside;
  }
  if (row.gradient) gradient(row, scale, between.signed_mass);
  return terms;
}

constexpr VocabRowKernels kKernels{extend, probabilities, sum, draft, narrow_row};

}  // namespace
}  // namespace pacer::nn::detail
