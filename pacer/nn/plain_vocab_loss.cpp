#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/device/device_memory.h"
#include "pacer/device/indices.h"
#include "pacer/nn/plain.h"

namespace pacer::nn::plain {
namespace {

// Calls body(begin, end) for the tiles of a row of `columns`.
template <typename Body>
void for_tiles(int64_t columns, int64_t tile, const Body& body) {
  for (int64_t begin = 0; begin < columns; begin += tile) body(begin, std::min(begin + tile, columns));
}

// log of the sum of exponentials of each row, and the largest: [R] each.
struct LogSum {
  at::Tensor log_sum, largest;
};
LogSum log_sum_of(const at::Tensor& logits, int64_t tile_width) {
  at::Tensor largest, sum;
  for_tiles(logits.size(1), tile_width, [&](int64_t begin, int64_t end) {
    const at::Tensor tile = logits.slice(1, begin, end).amax(1);
    largest = largest.defined() ? at::maximum(largest, tile) : tile;
  });
  for_tiles(logits.size(1), tile_width, [&](int64_t begin, int64_t end) {
    const at::Tensor tile = at::exp(logits.slice(1, begin, end) - largest.unsqueeze(1)).sum(1);
    sum = sum.defined() ? sum + tile : tile;
  });
  return {largest + at::log(sum), largest};
}

// Sum over columns of a [R, n], tile by tile.
at::Tensor row_sum(const at::Tensor& values, int64_t tile_width) {
  at::Tensor sum;
  for_tiles(values.size(1), tile_width, [&](int64_t begin, int64_t end) {
    const at::Tensor tile = values.slice(1, begin, end).sum(1);
    sum = sum.defined() ? sum + tile : tile;
  });
  return sum;
}

// g [R, n] f32, rounded to the dtype of weight, times weight [n, K] -> [R, K] f32.
at::Tensor back_product(const at::Tensor& g, const at::Tensor& weight) {
  at::Tensor sum;
  for_tiles(g.size(1), kTileColumns, [&](int64_t begin, int64_t end) {
    const at::Tensor rounded = g.slice(1, begin, end).to(weight.scalar_type()).to(at::kFloat);
    const at::Tensor part = at::mm(rounded, weight.slice(0, begin, end).to(at::kFloat));
    sum = sum.defined() ? sum.add_(part) : part;
  });
  return sum;
}

// Some rows of the loss, on the device.
class Rows {
 public:
  Rows(const VocabLossInput& in, int64_t begin, int64_t end, int64_t tile)
      : in_(in), begin_(begin), end_(end), tile_(tile) {}

  struct Terms {
    at::Tensor ce, l1, correct;  // [r] f32
    at::Tensor gradient;         // [r, n] f32, undefined without one
  };

  Terms operator()() const {
    at::Tensor z = product_f32(in_.hidden.slice(0, begin_, end_), in_.head);
    if (in_.markov.defined()) {
      z.add_(product_f32(in_.markov.index_select(0, longs(markov_rows())), in_.markov_out));
    }
    const auto [log_sum, largest] = log_sum_of(z, tile_);
    std::vector<int64_t> label;
    std::vector<float> has_label, ce_scale, l1_scale;
    for (auto row = static_cast<size_t>(begin_); row < static_cast<size_t>(end_); ++row) {
      const bool has = in_.label[row] >= 0;
      label.push_back(has ? in_.label[row] : 0);
      has_label.push_back(has ? 1.0f : 0.0f);
      ce_scale.push_back(has ? in_.ce_scale[row] : 0.0f);
      l1_scale.push_back(in_.l1_scale[row]);
    }
    const at::Tensor labels = longs(label).unsqueeze(1), labelled = floats(has_label);
    const at::Tensor own = z.gather(1, labels).squeeze(1);
    Terms terms;
    terms.ce = (log_sum - own) * labelled;
    terms.correct = (own >= largest).to(at::kFloat) * labelled;
    const at::Tensor q = at::exp(z - log_sum.unsqueeze(1));
    const at::Tensor scale = floats(ce_scale).unsqueeze(1);
    if (in_.gradient && !in_.soft) terms.gradient = (q * scale).scatter_add(1, labels, -scale);
    at::Tensor slope;  // of the L1 distance by the logits
    if (in_.teacher.defined()) {
      const auto [p, outside] = teacher();
      if (in_.soft) {
        const at::Tensor inside = outside.defined() ? 1 - outside : at::ones_like(log_sum);
        terms.ce = (inside * log_sum - row_sum(p * z, tile_)) * labelled;
        if (in_.gradient) terms.gradient = (q * inside.unsqueeze(1) - p) * scale;
      }
      const at::Tensor difference = q - p;
      terms.l1 = row_sum(difference.abs(), tile_);
      if (outside.defined()) terms.l1 = terms.l1 + outside;
      terms.l1 = terms.l1.clamp_max(2.0);  // rounding must not make an acceptance rate negative
      if (in_.gradient) {
        const at::Tensor sign = at::sign(difference);
        slope = q * (sign - row_sum(sign * q, tile_).unsqueeze(1));
      }
    } else {
      terms.l1 = at::zeros_like(terms.ce);
    }
    if (!in_.gradient) return terms;
    if (slope.defined()) terms.gradient.add_(slope.mul_(floats(l1_scale).unsqueeze(1)));
    return terms;
  }

  // Row of in.markov of each row.
  std::vector<int64_t> markov_rows() const {
    if (!in_.markov_row.empty()) return {in_.markov_row.begin() + begin_, in_.markov_row.begin() + end_};
    std::vector<int64_t> own(static_cast<size_t>(end_ - begin_));
    std::iota(own.begin(), own.end(), begin_);
    return own;
  }

  at::Tensor longs(const std::vector<int64_t>& values) const {
    return device::as_indices(there(values, at::kLong), in_.hidden.device());
  }
  at::Tensor floats(const std::vector<float>& values) const { return there(values, at::kFloat); }

 private:
  template <typename T>
  at::Tensor there(const std::vector<T>& values, at::ScalarType dtype) const {
    const auto size = static_cast<int64_t>(values.size());
    const at::Tensor here = at::from_blob(const_cast<T*>(values.data()), {size}, dtype).clone();
    return here.to(in_.hidden.device());
  }

  // Probabilities over the draft vocabulary and what lies outside of it: [r, n], [r] or undefined.
  std::pair<at::Tensor, at::Tensor> teacher() const {
    std::vector<int64_t> distinct(in_.teacher_row.begin() + begin_, in_.teacher_row.begin() + end_);
    std::ranges::sort(distinct);
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::vector<int64_t> place;
    for (int64_t row = begin_; row < end_; ++row) {
      place.push_back(std::ranges::lower_bound(distinct, in_.teacher_row[static_cast<size_t>(row)]) - distinct.begin());
    }
    const at::Tensor rows = longs(distinct), states = in_.teacher.index_select(0, rows);
    at::Tensor kept, log_sum, outside;
    if (in_.kept_ids.empty()) {
      kept = product_f32(states, in_.teacher_head);
      log_sum = log_sum_of(kept, tile_).log_sum;
    } else {
      const at::Tensor head = in_.teacher_kept_head.defined() ? in_.teacher_kept_head
                                                              : in_.teacher_head.index_select(0, longs(in_.kept_ids));
      kept = product_f32(states, head);
      log_sum = in_.renormalised                ? log_sum_of(kept, tile_).log_sum
                : in_.teacher_log_sum.defined() ? in_.teacher_log_sum.index_select(0, rows)
                                                : log_sum_rows(states, in_.teacher_head);
    }
    const at::Tensor p = at::exp(kept - log_sum.unsqueeze(1));
    const at::Tensor places = longs(place);
    if (!in_.kept_ids.empty() && !in_.renormalised)
      outside = (1 - row_sum(p, tile_)).clamp_min(0).index_select(0, places);
    return {p.index_select(0, places), outside};
  }

  const VocabLossInput& in_;
  int64_t begin_, end_, tile_;
};

// Rows in the order of their Markov rows, so that the gradients of those that share one are added before they are
// rounded.
std::vector<int64_t> order_of(const VocabLossInput& in) {
  std::vector<int64_t> order(in.label.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (in.markov_row.empty()) return order;
  std::ranges::stable_sort(order, {}, [&](int64_t row) { return in.markov_row[static_cast<size_t>(row)]; });
  return order;
}

template <typename T>
std::vector<T> ordered(const std::vector<T>& values, const std::vector<int64_t>& order) {
  std::vector<T> result;
  if (values.empty()) return result;
  for (const int64_t row : order) result.push_back(values[static_cast<size_t>(row)]);
  return result;
}

}  // namespace

at::Tensor log_sum_rows(const at::Tensor& states, const at::Tensor& head) {
  // The running maximum and sum of each row, over tiles of logits that are gone again.
  at::Tensor largest, sum;
  for_tiles(head.size(0), tile_columns(states.device()), [&](int64_t begin, int64_t end) {
    const at::Tensor tile = product_f32(states, head.slice(0, begin, end));
    const at::Tensor higher = largest.defined() ? at::maximum(largest, tile.amax(1)) : tile.amax(1);
    const at::Tensor part = at::exp(tile - higher.unsqueeze(1)).sum(1);
    sum = sum.defined() ? sum * at::exp(largest - higher) + part : part;
    largest = higher;
  });
  return largest + at::log(sum);
}

VocabLossOutput vocab_loss(const VocabLossInput& given, int64_t tile_bytes) {
  const at::NoGradGuard no_grad;
  VocabLossOutput out;
  const int64_t rows = given.hidden.size(0), n = given.head.size(0), tile = tile_columns(given.hidden.device());
  const std::vector<int64_t> order = order_of(given);
  VocabLossInput in = given;
  in.label = ordered(given.label, order), in.teacher_row = ordered(given.teacher_row, order);
  in.markov_row = ordered(given.markov_row, order);
  in.ce_scale = ordered(given.ce_scale, order), in.l1_scale = ordered(given.l1_scale, order);
  const at::Tensor places = Rows(in, 0, rows, tile).longs(order);
  if (rows > 0) in.hidden = given.hidden.index_select(0, places);

  const auto wide = in.hidden.options().dtype(at::kFloat);
  at::Tensor d_hidden, d_markov;
  if (in.gradient) {
    d_hidden = at::zeros(in.hidden.sizes(), wide);
    if (in.markov.defined()) {
      d_markov = at::zeros(in.markov.sizes(), wide);
      out.d_markov_out = in.d_markov_out.defined() ? in.d_markov_out : at::zeros(in.markov_out.sizes(), wide);
    }
  }
  constexpr int64_t kBuffers = 6;  // [r, n] f32 at once: logits, both distributions, their difference, gradients
  const int64_t at_once = std::max<int64_t>(1, tile_bytes / (kBuffers * n * static_cast<int64_t>(sizeof(float))));
  std::vector<at::Tensor> terms;
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    const int64_t end = std::min(begin + at_once, rows);
    const Rows some(in, begin, end, tile);
    const Rows::Terms of = some();
    terms.push_back(at::stack({of.ce, of.l1, of.correct}, 1));
    if (!in.gradient) continue;
    d_hidden.slice(0, begin, end).copy_(back_product(of.gradient, in.head));
    if (!in.markov.defined()) continue;
    std::vector<int64_t> distinct = some.markov_rows(), place = distinct;
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (int64_t& row : place) row = std::ranges::lower_bound(distinct, row) - distinct.begin();
    const at::Tensor shared =
        at::zeros({static_cast<int64_t>(distinct.size()), n}, wide).index_add_(0, some.longs(place), of.gradient);
    const at::Tensor markovs = some.longs(distinct);
    d_markov.index_add_(0, markovs, back_product(shared, in.markov_out));
    const at::Tensor factors = in.markov.index_select(0, markovs).to(at::kFloat);
    out.d_markov_out.add_(at::mm(shared.to(in.markov.scalar_type()).to(at::kFloat).t(), factors));
  }
  if (in.gradient) {
    std::vector<int64_t> place_of(order.size());
    for (size_t i = 0; i < order.size(); ++i) place_of[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    out.d_hidden = d_hidden.to(in.hidden.scalar_type());
    if (rows > 0) out.d_hidden = out.d_hidden.index_select(0, Rows(in, 0, rows, tile).longs(place_of));
    if (d_markov.defined()) out.d_markov = d_markov.to(in.markov.scalar_type());
  }

  out.ce.resize(order.size()), out.l1.resize(order.size()), out.correct.resize(order.size());
  if (rows == 0) return out;
  const at::Tensor host = device::to_host(at::cat(terms, 0)).contiguous();
  const float* value = host.const_data_ptr<float>();
  for (size_t i = 0; i < order.size(); ++i) {
    const auto row = static_cast<size_t>(order[i]);
    out.ce[row] = value[3 * i], out.l1[row] = value[3 * i + 1];
    out.correct[row] = value[3 * i + 2] > 0.5f ? 1 : 0;
  }
  return out;
}

}  // namespace pacer::nn::plain
