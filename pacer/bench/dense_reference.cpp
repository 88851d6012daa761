#include "pacer/bench/dense_reference.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <torch/csrc/autograd/autograd.h>

#include "pacer/base/error.h"

namespace pacer::bench {
namespace {

using at::Tensor;

Tensor integers(const std::vector<int64_t>& values) {
  return at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kLong).clone();
}

Tensor norm(const Tensor& x, const Tensor& weight, double epsilon) {
  return x * at::rsqrt((x * x).mean(-1, /*keepdim=*/true) + epsilon) * weight;
}

// x [T, heads, D] turned by position * theta^(-2 i / D), halves paired.
Tensor rotate(const Tensor& x, const Tensor& positions, double theta) {
  const int64_t half = x.size(2) / 2;
  const Tensor frequency = at::pow(theta, at::arange(half, at::kDouble) * (-1.0 / static_cast<double>(half)));
  const Tensor angle = at::outer(positions.to(at::kDouble), frequency).unsqueeze(1);
  const Tensor cosine = at::cos(angle).to(at::kFloat), sine = at::sin(angle).to(at::kFloat);
  const Tensor a = x.slice(2, 0, half), b = x.slice(2, half);
  return at::cat({a * cosine - b * sine, b * cosine + a * sine}, 2);
}

// What every slot is about.
struct Slots {
  std::vector<int64_t> id, position, previous, label, teacher;  // [B * K]; label 0 where there is none
  std::vector<float> weight;
  Tensor mask;  // [B * K, T + B * K]: 0 where a slot sees a key, else minus infinity
};

Slots slots_of(const draft::DraftConfig& config, const draft::FeatureBatch& batch, const draft::BlockPlan& plan,
               double gamma) {
  const int64_t size = config.block_size, blocks = plan.blocks(), tokens = batch.starts.back();
  const int64_t* ids = batch.ids.const_data_ptr<int64_t>();
  const uint8_t* supervised = batch.supervised.const_data_ptr<uint8_t>();
  Slots slots;
  slots.mask = at::full({blocks * size, tokens + blocks * size}, -std::numeric_limits<float>::infinity(), at::kFloat);
  for (int64_t b = 0; b < blocks; ++b) {
    const auto sequence = static_cast<size_t>(plan.sequence[static_cast<size_t>(b)]);
    const int64_t start = batch.starts[sequence], end = batch.starts[sequence + 1];
    const int64_t anchor = start + plan.anchor[static_cast<size_t>(b)];
    const Tensor rows = slots.mask.slice(0, b * size, (b + 1) * size);
    rows.slice(1, start, anchor).fill_(0);
    rows.slice(1, tokens + b * size, tokens + (b + 1) * size).fill_(0);
    bool live = true;
    for (int64_t k = 0; k < size; ++k) {
      const int64_t row = std::min(anchor + k, end - 1);
      live = live && anchor + k + 1 < end && supervised[anchor + k + 1] != 0;
      slots.id.push_back(k == 0 ? ids[anchor] : config.mask_token_id);
      slots.position.push_back(anchor - start + k);
      slots.previous.push_back(ids[row]);
      slots.teacher.push_back(row);
      slots.label.push_back(live ? ids[anchor + k + 1] : 0);
      const double decay = gamma > 0 ? std::exp(-static_cast<double>(k) / gamma) : 1.0;
      slots.weight.push_back(live ? static_cast<float>(decay) : 0.0f);
    }
  }
  return slots;
}

class Dense {
 public:
  Dense(const draft::DraftConfig& config, const std::map<std::string, Tensor>& masters) : config_(config) {
    for (const auto& [name, master] : masters) weights_[name] = master.detach().clone().requires_grad_(true);
  }

  const Tensor& weight(const std::string& name) const { return weights_.at(name + ".weight"); }
  const std::map<std::string, Tensor>& weights() const { return weights_; }

  Tensor layer(int64_t index, const Tensor& x, const Tensor& context, const Tensor& context_positions,
               const Tensor& positions, const Tensor& mask) const {
    const target::ModelConfig& sizes = config_.layer;
    const std::string at = "layers." + std::to_string(index) + ".", attention = at + "self_attn.", mlp = at + "mlp.";
    const auto heads = [&](const std::string& name, const Tensor& rows) {
      return at::matmul(rows, weight(attention + name).t()).view({rows.size(0), -1, sizes.head_dim});
    };
    const auto turned = [&](const std::string& name, const Tensor& rows, const Tensor& at_positions) {
      const Tensor normed = norm(heads(name + "_proj", rows), weight(attention + name + "_norm"), sizes.rms_epsilon);
      return rotate(normed, at_positions, sizes.rope.theta);
    };
    const Tensor y = norm(x, weight(at + "input_layernorm"), sizes.rms_epsilon);
    const Tensor q = turned("q", y, positions).transpose(0, 1);
    const int64_t group = sizes.heads / sizes.kv_heads;
    const auto keys = [&](const Tensor& of_context, const Tensor& of_blocks) {
      return at::repeat_interleave(at::cat({of_context, of_blocks}), group, 1).transpose(0, 1);
    };
    const Tensor k = keys(turned("k", context, context_positions), turned("k", y, positions));
    const Tensor v = keys(heads("v_proj", context), heads("v_proj", y));
    const double scale = 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
    const Tensor mixed = at::matmul(at::softmax(at::matmul(q, k.transpose(1, 2)) * scale + mask, -1), v);
    const Tensor middle = x + at::matmul(mixed.transpose(0, 1).flatten(1), weight(attention + "o_proj").t());
    const Tensor z = norm(middle, weight(at + "post_attention_layernorm"), sizes.rms_epsilon);
    const Tensor gated =
        at::silu(at::matmul(z, weight(mlp + "gate_proj").t())) * at::matmul(z, weight(mlp + "up_proj").t());
    return middle + at::matmul(gated, weight(mlp + "down_proj").t());
  }

 private:
  const draft::DraftConfig& config_;
  std::map<std::string, Tensor> weights_;
};

void check_supported(const draft::DraftConfig& config, const draft::LossOptions& options) {
  const target::ModelConfig& sizes = config.layer;
  if (config.markov != draft::MarkovKind::vanilla || !config.sample_from_anchor || config.reduced() ||
      !config.confidence_head || !config.confidence_with_markov || sizes.qkv_bias || sizes.o_bias ||
      sizes.rope.type != "default" || options.dynamic_weights()) {
    throw Error(ErrorKind::usage,
                "the dense reference is for DSpark with a vanilla Markov head, a confidence head that "
                "reads it, the full vocabulary and no biases");
  }
}

}  // namespace

DenseStep dense_step(const draft::DraftConfig& config, const std::map<std::string, Tensor>& masters,
                     const draft::FeatureBatch& batch, const draft::BlockPlan& plan, const draft::LossOptions& options,
                     const target::Target& target) {
  check_supported(config, options);
  const at::AutoGradMode with_gradients(true);
  const Dense dense(config, masters);
  const Slots slots = slots_of(config, batch, plan, options.decay_gamma);
  const double epsilon = config.layer.rms_epsilon;

  std::vector<int64_t> context_positions;
  for (size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    for (int64_t p = 0; p < batch.starts[s + 1] - batch.starts[s]; ++p) context_positions.push_back(p);
  }
  const Tensor tapped = batch.tapped.to(at::kFloat).flatten(1);
  const Tensor context = norm(at::matmul(tapped, dense.weight("fc").t()), dense.weight("hidden_norm"), epsilon);
  const Tensor head = target.head_weight().to(at::kFloat), positions = integers(slots.position);
  Tensor x = target.embedding_weight().index_select(0, integers(slots.id)).to(at::kFloat);
  for (int64_t i = 0; i < config.layers; ++i) {
    x = dense.layer(i, x, context, integers(context_positions), positions, slots.mask);
  }
  const Tensor hidden = norm(x, dense.weight("norm"), epsilon);

  const Tensor e = dense.weight("markov_head.markov_w1").index_select(0, integers(slots.previous));
  const Tensor logits = at::matmul(hidden, head.t()) + at::matmul(e, dense.weight("markov_head.markov_w2").t());
  const Tensor teacher =
      at::softmax(at::matmul(batch.last.to(at::kFloat).index_select(0, integers(slots.teacher)), head.t()), -1);
  const Tensor log_q = at::log_softmax(logits, -1);
  const Tensor ce = -at::gather(log_q, 1, integers(slots.label).unsqueeze(1)).squeeze(1);
  const Tensor l1 = at::abs(log_q.exp() - teacher).sum(-1);
  const Tensor c = (at::matmul(at::cat({hidden, e}, 1), dense.weight("confidence_head.proj").t()) +
                    dense.weights().at("confidence_head.proj.bias"))
                       .squeeze(1);
  const Tensor accepted = (1.0 - 0.5 * l1).clamp(0.0, 1.0).detach();
  const Tensor bce = at::softplus(c) - c * accepted;

  const Tensor weight =
      at::from_blob(const_cast<float*>(slots.weight.data()), {static_cast<int64_t>(slots.weight.size())}, at::kFloat);
  const auto mean = [&](const Tensor& terms) { return (terms * weight).sum() / weight.sum(); };
  const Tensor loss = options.ce_alpha * mean(ce) + options.l1_alpha * mean(l1) + options.confidence_alpha * mean(bce);
  torch::autograd::backward({loss}, {});

  DenseStep step{loss.item<double>(), 0};
  double squares = 0;
  for (const auto& [name, tensor] : dense.weights()) {
    const Tensor gradient = tensor.grad();
    if (gradient.defined()) squares += gradient.to(at::kDouble).square().sum().item<double>();
  }
  step.gradient_norm = std::sqrt(squares);
  return step;
}

}  // namespace pacer::bench
