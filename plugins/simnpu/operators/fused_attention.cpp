// npu_fusion_attention: attention(Q, K, V) = softmax(scale * Q K^T + pse, masked) V in one kernel.
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include "plugins/npu/fused_schemas.h"
#include "plugins/simnpu/operators/fused.h"
#include "plugins/simnpu/operators/launch.h"

namespace pacer::simnpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<at::Tensor>;
using Tensors = std::vector<at::Tensor>;

struct Options {
  int64_t heads;
  std::string layout;
  double scale;
  int64_t before, after;  // sparse_mode 0: keys from `before` before to `after` behind a query's place take part
  bool banded;
};

// Any layout as [B, N, S, D]. Views, so that writing to the result writes the tensor.
at::Tensor as_heads(const at::Tensor& x, const std::string& layout, int64_t heads) {
  if (layout == "BNSD") return x;
  if (layout == "BSND") return x.transpose(1, 2);
  if (layout == "BSH") return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).permute({1, 2, 0, 3});  // SBH
}

// Keys and values may have fewer heads, each serving a run of query heads.
int64_t key_heads(const at::Tensor& query, const at::Tensor& key, const Options& options) {
  if (options.layout == "BNSD") return key.size(1);
  if (options.layout == "BSND") return key.size(2);
  return key.size(2) / (query.size(2) / options.heads);
}

struct Parts {
  at::Tensor q, k, v;      // f32 [B, N, S, D], key heads repeated
  at::Tensor probability;  // [B, N, Q, K]
  at::Tensor maximum, sum;
};

// query, key, value, pse, atten_mask
Parts compute(const Tensors& in, const Options& options) {
  const int64_t fewer = key_heads(in[0], in[1], options);
  Parts parts;
  const auto wide = [&](const at::Tensor& x, int64_t heads) {
    const at::Tensor h = as_heads(x, options.layout, heads).to(at::kFloat);
    return heads == options.heads ? h : h.repeat_interleave(options.heads / heads, 1);
  };
  parts.q = wide(in[0], options.heads);
  parts.k = wide(in[1], fewer);
  parts.v = wide(in[2], fewer);
  at::Tensor scores = at::matmul(parts.q, parts.k.transpose(-1, -2)) * options.scale;
  if (in[3].defined()) scores = scores + in[3].to(at::kFloat);
  at::Tensor hidden = in[4].defined() ? in[4].to(at::kBool) : at::Tensor();  // true: does not take part
  if (options.banded) {
    const at::Tensor distance = at::arange(scores.size(-1)).unsqueeze(0) - at::arange(scores.size(-2)).unsqueeze(1);
    const at::Tensor outside = (distance < -options.before).logical_or(distance > options.after);
    hidden = hidden.defined() ? hidden.logical_or(outside) : outside;
  }
  if (hidden.defined()) scores = scores.masked_fill(hidden, -std::numeric_limits<float>::infinity());
  parts.maximum = scores.amax(-1, true).clamp_min(std::numeric_limits<float>::lowest());  // a row that sees nothing
  const at::Tensor weights = (scores - parts.maximum).exp();
  parts.sum = weights.sum(-1, true);
  parts.probability = weights / parts.sum.clamp_min(std::numeric_limits<float>::min());
  return parts;
}

using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, int64_t, int64_t, int64_t>;

struct Outputs {
  at::Tensor attention, maximum, sum;
};

Outputs forward_kernel(const Tensors& inputs, const Options& options) {
  const at::Tensor& query = inputs[0];
  const at::Tensor heads = as_heads(query, options.layout, options.heads);
  // Eight equal columns, as the real operator lays its statistics out.
  const std::vector<int64_t> statistics = {heads.size(0), heads.size(1), heads.size(2), 8};
  Outputs out{at::empty(query.sizes(), query.options()), at::empty(statistics, query.options().dtype(at::kFloat)),
              at::empty(statistics, query.options().dtype(at::kFloat))};
  launch_kernel("npu::npu_fusion_attention", inputs, {out.attention, out.maximum, out.sum},
                [options](const Tensors& in, const Tensors& results) {
                  const Parts parts = compute(in, options);
                  as_heads(results[0], options.layout, options.heads).copy_(at::matmul(parts.probability, parts.v));
                  results[1].copy_(parts.maximum.expand_as(results[1]));
                  results[2].copy_(parts.sum.expand_as(results[2]));
                });
  return out;
}

// With P the probabilities: dV = P^T dO, dP = dO V^T, dS = P * (dP - rowsum(P * dP)), dQ = scale dS K, dK = scale dS^T
// Q.
Tensors backward_kernel(const at::Tensor& grad, Tensors inputs, const Options& options) {
  Tensors grads = {at::empty_like(inputs[0]), at::empty_like(inputs[1]), at::empty_like(inputs[2])};
  inputs.push_back(grad);
  launch_kernel("npu::npu_fusion_attention_grad", inputs, grads, [options](const Tensors& in, const Tensors& out) {
    const Parts parts = compute(in, options);
    const int64_t fewer = key_heads(in[0], in[1], options);
    const at::Tensor dy = as_heads(in[5], options.layout, options.heads).to(at::kFloat);
    const at::Tensor dp = at::matmul(dy, parts.v.transpose(-1, -2));
    const at::Tensor ds = parts.probability * (dp - (parts.probability * dp).sum(-1, true)) * options.scale;
    const auto narrow = [&](const at::Tensor& g) {  // queries that share a key head add up
      return g.view({g.size(0), fewer, options.heads / fewer, g.size(2), g.size(3)}).sum(2);
    };
    as_heads(out[0], options.layout, options.heads).copy_(at::matmul(ds, parts.k));
    as_heads(out[1], options.layout, fewer).copy_(narrow(at::matmul(ds.transpose(-1, -2), parts.q)));
    as_heads(out[2], options.layout, fewer).copy_(narrow(at::matmul(parts.probability.transpose(-1, -2), dy)));
  });
  return grads;
}

class Attention : public torch::autograd::Function<Attention> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, const MaybeTensor& pse, const MaybeTensor& mask,
                               const Options& options) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensors inputs = {query, key, value, pse.value_or(at::Tensor()), mask.value_or(at::Tensor())};
    const Outputs out = forward_kernel(inputs, options);
    context->save_for_backward(inputs);
    context->saved_data["heads"] = options.heads;
    context->saved_data["layout"] = options.layout;
    context->saved_data["scale"] = options.scale;
    context->saved_data["before"] = options.before;
    context->saved_data["after"] = options.after;
    context->saved_data["banded"] = options.banded;
    context->mark_non_differentiable({out.maximum, out.sum});
    return {out.attention, out.maximum, out.sum};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    auto& kept = context->saved_data;
    const Options options{kept["heads"].toInt(),  kept["layout"].toStringRef(), kept["scale"].toDouble(),
                          kept["before"].toInt(), kept["after"].toInt(),        kept["banded"].toBool()};
    const Tensors all = backward_kernel(grads[0], context->get_saved_variables(), options);
    return {all[0], all[1], all[2], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

Options checked(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t heads,
                c10::string_view layout, double scale, double keep_prob, int64_t before, int64_t after,
                int64_t sparse_mode, bool has_more) {
  const std::string name(layout);
  TORCH_CHECK(name == "BSH" || name == "SBH" || name == "BSND" || name == "BNSD", "npu_fusion_attention: the layout '",
              name, "' is not simulated (BSH, SBH, BSND, BNSD are)");
  TORCH_CHECK(sparse_mode == 0 || sparse_mode == 1, "npu_fusion_attention: sparse_mode ", sparse_mode,
              " is not simulated (0 and 1 are)");
  TORCH_CHECK(keep_prob == 1.0, "npu_fusion_attention: dropout is not simulated");
  TORCH_CHECK(!has_more,
              "npu_fusion_attention: padding_mask, prefix, actual_seq_*, sink and dropout_mask are not simulated");
  TORCH_CHECK(query.dim() == (name.size() == 3 ? 3 : 4) && key.dim() == query.dim() && key.sizes() == value.sizes(),
              "npu_fusion_attention: query ", query.sizes(), ", key ", key.sizes(), ", value ", value.sizes());
  const bool banded = sparse_mode == 0 && (before < key.numel() || after < key.numel());
  const Options options{heads, name, scale, before, after, banded};
  TORCH_CHECK(as_heads(query, name, heads).size(1) == heads && heads % key_heads(query, key, options) == 0,
              "npu_fusion_attention: head_num ", heads, " does not fit query ", query.sizes(), " and key ",
              key.sizes());
  return options;
}

template <bool differentiable>
Result npu_fusion_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t head_num,
                            c10::string_view input_layout, const MaybeTensor& pse, const MaybeTensor& padding_mask,
                            const MaybeTensor& atten_mask, double scale, double keep_prob, int64_t pre_tockens,
                            int64_t next_tockens, int64_t, at::OptionalIntArrayRef prefix,
                            at::OptionalIntArrayRef actual_seq_qlen, at::OptionalIntArrayRef actual_seq_kvlen,
                            int64_t sparse_mode, bool, bool, c10::string_view, const MaybeTensor& sink,
                            const MaybeTensor& dropout_mask, int64_t, int64_t) {
  const bool has_more = padding_mask || prefix || actual_seq_qlen || actual_seq_kvlen || sink || dropout_mask;
  const Options options = checked(query, key, value, head_num, input_layout, scale, keep_prob, pre_tockens,
                                  next_tockens, sparse_mode, has_more);
  TORCH_CHECK(!atten_mask || atten_mask->scalar_type() == at::kBool || atten_mask->scalar_type() == at::kByte,
              "npu_fusion_attention: atten_mask must be bool or uint8, true where a key does not take part");
  const at::Tensor none = at::empty({0}, query.options());
  if constexpr (differentiable) {
    const variable_list out = Attention::apply(query, key, value, pse, atten_mask, options);
    return {out[0], out[1], out[2], none, 0, 0, 0};
  } else {
    const Outputs out =
        forward_kernel({query, key, value, pse.value_or(at::Tensor()), atten_mask.value_or(at::Tensor())}, options);
    return {out.attention, out.maximum, out.sum, none, 0, 0, 0};
  }
}

}  // namespace

void add_fused_attention(torch::Library& schemas, torch::Library& kernels, torch::Library& autograd) {
  schemas.def(npu::kFusionAttentionSchema);
  kernels.impl("npu_fusion_attention", &npu_fusion_attention<false>);
  autograd.impl("npu_fusion_attention", &npu_fusion_attention<true>);
}

}  // namespace pacer::simnpu
