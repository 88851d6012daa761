#include "pacer/nn/vocab_loss_markov.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include "pacer/nn/vocab_loss_product.h"

namespace pacer::nn::detail {
namespace {

constexpr int64_t kColumns =
    8192;  // of markov_out's gradient at once: the product stays in the caches until it is added

}  // namespace

MarkovGradient::MarkovGradient(const at::Tensor& buffer, const at::Tensor& markov, const at::Tensor& markov_out,
                               const at::Tensor& d_markov, const at::Tensor& d_markov_out)
    : rows_(buffer.view({-1, markov_out.size(0)})),
      markov_(markov),
      markov_out_(markov_out),
      d_markov_(d_markov),
      d_markov_out_(d_markov_out) {}

at::Tensor MarkovGradient::places(const std::vector<int64_t>& markov_rows) {
  const auto count = static_cast<int64_t>(markov_rows.size());
  if (static_cast<int64_t>(waiting_.size()) + count > capacity()) finish();
  const auto begin = static_cast<int64_t>(waiting_.size());
  waiting_.insert(waiting_.end(), markov_rows.begin(), markov_rows.end());
  return rows_.slice(0, begin, begin + count);
}

void MarkovGradient::finish() {
  if (waiting_.empty()) return;
  const auto count = static_cast<int64_t>(waiting_.size());
  const at::Tensor index = at::from_blob(waiting_.data(), {count}, at::kLong), gradient = rows_.slice(0, 0, count);
  const at::Tensor d_rows = at::empty({count, markov_out_.size(1)}, at::kFloat);
  back_product_f32(d_rows, gradient, markov_out_);
  d_markov_.index_add_(0, index, d_rows.to(d_markov_.scalar_type()));
  const at::Tensor markov = markov_.index_select(0, index), turned = gradient.t();
  for (int64_t begin = 0; begin < turned.size(0); begin += kColumns) {
    const int64_t end = std::min(begin + kColumns, turned.size(0));
    d_markov_out_.slice(0, begin, end).add_(at::mm(turned.slice(0, begin, end), markov));
  }
  waiting_.clear();
}

}  // namespace pacer::nn::detail
