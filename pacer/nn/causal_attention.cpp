#include "pacer/nn/causal_attention.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"

namespace pacer::nn {
namespace {

constexpr int64_t kQueryBlock = 256;  // rows of a mask that exist at once

// [T, heads, D] as the library wants it, [1, heads, T, D], without a copy.
at::Tensor batch_of_one(const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); }

at::Tensor flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                 const std::optional<at::Tensor>& mask) {
  const at::Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      batch_of_one(q), batch_of_one(k), batch_of_one(v), /*dropout_p=*/0.0, causal, mask));
  return out.squeeze(0).transpose(0, 1);
}

// 0 where query (first_query + i) sees key (first_key + j), else -inf: [1, 1, queries, keys].
at::Tensor mask_of(int64_t first_query, int64_t queries, int64_t first_key, int64_t keys, int64_t window,
                   at::ScalarType dtype) {
  const at::Tensor query = at::arange(first_query, first_query + queries).unsqueeze(1);
  const at::Tensor key = at::arange(first_key, first_key + keys).unsqueeze(0);
  const at::Tensor hidden = (key > query) + (key <= query - window);
  return at::zeros({queries, keys}, at::TensorOptions().dtype(dtype))
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity())
      .unsqueeze(0)
      .unsqueeze(0);
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::optional<int64_t> window) {
  if (q.dim() != 3 || k.dim() != 3 || v.sizes() != k.sizes() || q.size(2) != k.size(2) || q.size(0) > k.size(0) ||
      k.size(1) == 0 || q.size(1) % k.size(1) != 0 || (window && *window < 1)) {
    throw Error(ErrorKind::bug, "causal_attention: q " + c10::str(q.sizes()) + ", k " + c10::str(k.sizes()) + ", v " +
                                    c10::str(v.sizes()));
  }
  const int64_t rows = q.size(0), length = k.size(0), past = length - rows;
  const int64_t reach = std::min(window.value_or(length), length);
  if (rows == 0) return at::empty_like(q);
  if (past == 0 && reach >= length) return flash(q, k, v, /*causal=*/true, std::nullopt);

  at::Tensor out = at::empty({rows, q.size(1), q.size(2)}, q.options());
  for (int64_t begin = 0; begin < rows; begin += kQueryBlock) {
    const int64_t end = std::min(begin + kQueryBlock, rows);
    const int64_t first_key = std::max<int64_t>(0, past + begin - reach + 1), last_key = past + end;
    const at::Tensor mask = mask_of(past + begin, end - begin, first_key, last_key - first_key, reach, q.scalar_type());
    out.slice(0, begin, end)
        .copy_(flash(q.slice(0, begin, end), k.slice(0, first_key, last_key), v.slice(0, first_key, last_key),
                     /*causal=*/false, mask));
  }
  return out;
}

}  // namespace pacer::nn
