#include "pacer/draft/training.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "pacer/base/error.h"
#include "pacer/base/random.h"
#include "pacer/draft/backbone.h"
#include "pacer/draft/block_batch.h"
#include "pacer/draft/markov.h"
#include "pacer/draft/training_loss.h"
#include "pacer/draft/warm_start.h"
#include "pacer/draft/weights.h"
#include "pacer/nn/linear.h"
#include "pacer/nn/vocab_loss.h"
#include "pacer/target/rope_frequencies.h"

namespace pacer::draft {
namespace {

constexpr const char* kW1 = "markov_head.markov_w1.weight";
constexpr const char* kW2 = "markov_head.markov_w2.weight";
constexpr const char* kConfidenceWeight = "confidence_head.proj.weight";
constexpr const char* kConfidenceBias = "confidence_head.proj.bias";

at::Tensor floats(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}, at::kFloat).clone();
}

std::vector<float> to_vector(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kFloat).contiguous();
  const float* data = dense.const_data_ptr<float>();
  return {data, data + dense.numel()};
}

// A compute copy, or some rows of one that stands for several parameters, and the master that it follows.
struct Link {
  at::Tensor compute;
  int64_t begin, end;  // rows of compute
  std::string master;
};

class BlockDraftTraining final : public DraftTraining {
 public:
  BlockDraftTraining(DraftFolder draft, const LossOptions& loss, std::shared_ptr<const target::Target> target,
                     at::ScalarType dtype)
      : config_(std::move(draft.config)),
        loss_(loss),
        target_(std::move(target)),
        dtype_(dtype),
        masters_(std::move(draft.weights)),
        backbone_(config_, target::rope_table(config_.layer.rope, config_.layer.head_dim, config_.layer.max_position)),
        weights_(draft::arrange(config_, masters_, dtype)),
        markov_(arrange_markov(config_, masters_, dtype)),
        teacher_head_(draft_head(config_, *target_)),
        head_(teacher_head_.to(dtype)),
        vocab_loss_(loss.tile_bytes) {
    for (auto& [name, master] : masters_) master = master.detach().clone().requires_grad_(true);
    link();
  }

  const DraftConfig& config() const override { return config_; }
  std::map<std::string, at::Tensor>& parameters() override { return masters_; }

  void refresh() override {
    const at::NoGradGuard no_grad;
    for (const Link& link : links_) link.compute.slice(0, link.begin, link.end).copy_(masters_.at(link.master));
  }

  void warm_start(const FeatureBatch& sample) override {
    const at::NoGradGuard no_grad;
    draft::warm_start(config_, *target_, sample, masters_);
    refresh();
  }

  at::Tensor teacher_log_sums(const at::Tensor& last) const override {
    if (!config_.reduced() || loss_.renormalised_teacher) return {};
    return nn::log_sum_rows(last, target_->head_weight());
  }

  BlockPlan plan(const FeatureBatch& batch, int64_t anchors_per_sequence, const StepRandom& random) const override {
    return plan_blocks(config_, loss_, host_tokens(batch), anchors_per_sequence, random);
  }

  LossTerms loss(const FeatureBatch& batch, const BlockPlan& plan, const LossScale& scale, bool backward) override;

  void save(const std::filesystem::path& folder, at::ScalarType dtype, bool with_frozen) const override {
    write_draft(folder, {config_, masters_}, dtype, with_frozen ? target_.get() : nullptr);
  }

 private:
  struct Hidden;

  void link();
  at::Tensor backbone_pass(const FeatureBatch& batch, const BlockBatch& blocks);
  nn::VocabLossInput loss_input(const FeatureBatch& batch, const LiveSlots& live, const at::Tensor& hidden,
                                const at::Tensor& u, const LossScale& scale, bool backward) const;
  at::Tensor confidence_logits(const at::Tensor& hidden, const at::Tensor& e) const;
  void collect_gradients();
  void add_gradient(const std::string& name, const at::Tensor& gradient);

  DraftConfig config_;
  LossOptions loss_;
  std::shared_ptr<const target::Target> target_;
  at::ScalarType dtype_;
  DraftWeights masters_;
  Backbone backbone_;
  BackboneWeights weights_;
  MarkovWeights markov_;
  std::vector<Link> links_;
  at::Tensor teacher_head_, head_;  // [n, H] frozen rows of the target's head: its dtype, and the compute dtype
  nn::VocabLoss vocab_loss_;
  RopeCache rope_cache_;
};

void BlockDraftTraining::link() {
  const auto add = [this](const at::Tensor& compute, std::initializer_list<std::string> masters) {
    if (!compute.defined()) return;
    compute.requires_grad_(true);
    int64_t row = 0;
    for (const std::string& name : masters) {
      const int64_t rows = masters_.at(name).size(0);
      links_.push_back({compute, row, row + rows, name});
      row += rows;
    }
  };
  add(weights_.fc, {"fc.weight"});
  add(weights_.hidden_norm, {"hidden_norm.weight"});
  add(weights_.norm, {"norm.weight"});
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    const std::string at = "layers." + std::to_string(i) + ".", attention = at + "self_attn.", mlp = at + "mlp.";
    add(layer.input_norm, {at + "input_layernorm.weight"});
    add(layer.post_norm, {at + "post_attention_layernorm.weight"});
    add(layer.q, {attention + "q_proj.weight"});
    add(layer.q_bias, {attention + "q_proj.bias"});
    add(layer.kv, {attention + "k_proj.weight", attention + "v_proj.weight"});
    add(layer.kv_bias, {attention + "k_proj.bias", attention + "v_proj.bias"});
    add(layer.q_norm, {attention + "q_norm.weight"});
    add(layer.k_norm, {attention + "k_norm.weight"});
    add(layer.o, {attention + "o_proj.weight"});
    add(layer.o_bias, {attention + "o_proj.bias"});
    add(layer.gate_up, {mlp + "gate_proj.weight", mlp + "up_proj.weight"});
    add(layer.down, {mlp + "down_proj.weight"});
  }
  add(markov_.w2, {kW2});
  const std::string projection = markov_.kind == MarkovKind::gated ? "gate_proj" : "joint_proj";
  add(markov_.projection, {"markov_head." + projection + ".weight"});
  add(markov_.projection_bias, {"markov_head." + projection + ".bias"});
}

// [B * K, H] behind the final norm.
at::Tensor BlockDraftTraining::backbone_pass(const FeatureBatch& batch, const BlockBatch& blocks) {
  const at::Tensor tapped = batch.tapped.index_select(0, blocks.context_rows).to(dtype_);
  const nn::RopeRows context_rope = rope_cache_.rows(backbone_.rope(), blocks.context_positions);
  const nn::RopeRows block_rope = rope_cache_.rows(backbone_.rope(), blocks.positions);
  const at::Tensor context = backbone_.context(weights_, tapped);
  at::Tensor x = target_->embedding_weight().index_select(0, blocks.ids).to(dtype_);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const KeysValues keys = backbone_.context_keys(weights_.layers[i], context, context_rope);
    x = backbone_.layer(weights_.layers[i], static_cast<int64_t>(i), x, keys, blocks.layout, block_rope);
  }
  return backbone_.final_norm(weights_, x);
}

nn::VocabLossInput BlockDraftTraining::loss_input(const FeatureBatch& batch, const LiveSlots& live,
                                                  const at::Tensor& hidden, const at::Tensor& u, const LossScale& scale,
                                                  bool backward) const {
  nn::VocabLossInput input;
  input.hidden = hidden.detach();
  input.head = head_;
  if (u.defined()) input.markov = u.detach(), input.markov_out = markov_.w2.detach();
  const bool wants_teacher =
      !backward || loss_.l1_alpha != 0 || (config_.confidence_head && loss_.confidence_alpha != 0);
  if (wants_teacher) {
    input.teacher = batch.last;
    input.teacher_head = target_->head_weight();
    input.teacher_row = live.teacher_row;
    input.kept_ids = config_.kept_ids;
    input.renormalised = loss_.renormalised_teacher;
    if (batch.log_sum.defined() && config_.reduced() && !loss_.renormalised_teacher) {
      input.teacher_log_sum = batch.log_sum;
      input.teacher_kept_head = teacher_head_;
    }
  }
  input.label = live.label;
  for (const float weight : live.weight) {
    input.ce_scale.push_back(static_cast<float>(static_cast<double>(weight) * scale.ce));
    input.l1_scale.push_back(static_cast<float>(static_cast<double>(weight) * scale.l1));
  }
  input.gradient = backward;
  return input;
}

// In f32: the head is one row, and its target is a probability.
at::Tensor BlockDraftTraining::confidence_logits(const at::Tensor& hidden, const at::Tensor& e) const {
  const at::Tensor features =
      config_.confidence_with_markov ? at::cat({hidden, e}, 1).to(at::kFloat) : hidden.to(at::kFloat);
  return nn::linear(features, masters_.at(kConfidenceWeight), masters_.at(kConfidenceBias)).flatten();
}

void BlockDraftTraining::add_gradient(const std::string& name, const at::Tensor& gradient) {
  at::Tensor& sum = masters_.at(name).mutable_grad();
  if (sum.defined()) {
    sum.add_(gradient);
  } else {
    sum = gradient.to(at::kFloat, false, /*copy=*/true);
  }
}

void BlockDraftTraining::collect_gradients() {
  for (const Link& link : links_) {
    const at::Tensor& gradient = link.compute.grad();
    if (gradient.defined()) add_gradient(link.master, gradient.slice(0, link.begin, link.end));
  }
  for (Link& link : links_) link.compute.mutable_grad().reset();
}

LossTerms BlockDraftTraining::loss(const FeatureBatch& batch, const BlockPlan& plan, const LossScale& scale,
                                   bool backward) {
  const PackedTokens tokens = host_tokens(batch);
  const LiveSlots live = live_slots(config_, plan, tokens.ids.data());
  if (live.slot.empty()) return sum_terms(config_, plan, live, {}, {});
  const at::AutoGradMode grad_mode(backward);
  const BlockBatch blocks = block_batch(config_, plan, tokens);
  const at::Tensor hidden = backbone_pass(batch, blocks);

  const at::Tensor rows = index_tensor(live.slot);
  const at::Tensor live_hidden = hidden.index_select(0, rows);
  at::Tensor e, live_e, live_u;  // e = W1[previous]: a leaf, so that no [V, r] gradient is made on the way
  if (config_.markov != MarkovKind::none) {
    e = masters_.at(kW1).detach().index_select(0, blocks.previous_ids).to(dtype_).requires_grad_(backward);
    live_e = e.index_select(0, rows);
    live_u = markov_blocks(markov_, e, hidden, plan.block_size).index_select(0, rows);
  }
  const at::Tensor confidence = config_.confidence_head ? confidence_logits(live_hidden, live_e) : at::Tensor();

  nn::VocabLossInput input = loss_input(batch, live, live_hidden, live_u, scale, backward);
  LiveLosses losses;
  losses.has_teacher = input.teacher.defined();
  losses.ce_weight = live.weight;
  if (loss_.dynamic_weights()) {
    // The weights need the cross-entropy of whole blocks, whose rows lie in different bands: a pass of its own.
    nn::VocabLossInput first = input;
    first.teacher = at::Tensor(), first.gradient = false;
    losses.ce_weight = dpace_weights(loss_, plan, live, vocab_loss_(first).ce);
    for (size_t i = 0; i < live.slot.size(); ++i) {
      input.ce_scale[i] = static_cast<float>(static_cast<double>(losses.ce_weight[i]) * scale.ce);
    }
  }
  const nn::VocabLossOutput output = vocab_loss_(input);
  losses.ce = output.ce, losses.l1 = output.l1, losses.correct = output.correct;
  const std::vector<float> logits = confidence.defined() ? to_vector(confidence) : std::vector<float>();
  const LossTerms terms = sum_terms(config_, plan, live, losses, logits);
  if (!backward) return terms;

  torch::autograd::variable_list outputs{live_hidden}, gradients{output.d_hidden};
  if (live_u.defined()) outputs.push_back(live_u), gradients.push_back(output.d_markov);
  if (confidence.defined() && scale.confidence != 0) {
    std::vector<float> d_logits(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      const float accepted = acceptance(output.l1[i]);
      const double slope = confidence_loss(logits[i], accepted).sigmoid - static_cast<double>(accepted);
      d_logits[i] = static_cast<float>(scale.confidence * static_cast<double>(live.weight[i]) * slope);
    }
    outputs.push_back(confidence), gradients.push_back(floats(d_logits));
  }
  torch::autograd::backward(outputs, gradients);
  const at::NoGradGuard no_grad;
  if (live_u.defined()) {
    add_gradient(kW2, output.d_markov_out);
    at::Tensor& w1 = masters_.at(kW1).mutable_grad();
    if (!w1.defined()) w1 = at::zeros_like(masters_.at(kW1));
    w1.index_add_(0, blocks.previous_ids, e.grad().to(at::kFloat));
  }
  collect_gradients();
  return terms;
}

uint64_t stream_of(const std::string& name) {  // FNV-1a
  uint64_t hash = 14695981039346656037ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

// As Hugging Face initialises: matrices N(0, 0.02), norms 1, biases 0.
at::Tensor initial(const std::string& name, const std::vector<int64_t>& shape, uint64_t seed) {
  if (name.ends_with("norm.weight") || name.ends_with("layernorm.weight")) return at::ones(shape, at::kFloat);
  at::Tensor weight = at::zeros(shape, at::kFloat);
  if (name.ends_with(".bias")) return weight;
  const RandomStream stream(seed, Purpose::initial_weights, 0, stream_of(name));
  float* data = weight.mutable_data_ptr<float>();
  for (int64_t i = 0; i < weight.numel(); ++i) {
    data[i] = static_cast<float>(0.02 * stream.normal(static_cast<uint64_t>(i)));
  }
  return weight;
}

void check_dtype(at::ScalarType dtype) {
  if (dtype == at::kFloat || dtype == at::kBFloat16) return;
  throw Error(ErrorKind::usage,
              std::string("a draft cannot be trained in ") + toString(dtype) + ", allowed: float32, bfloat16");
}

}  // namespace

std::unique_ptr<DraftTraining> DraftTraining::create(const DraftConfig& config, const LossOptions& loss,
                                                     std::shared_ptr<const target::Target> target, uint64_t seed,
                                                     at::ScalarType compute_dtype, device::Runtime&) {
  check_dtype(compute_dtype);
  check_loss_options(loss);
  config.validate("the draft");
  check_target(config, *target, "the draft");
  DraftFolder draft{config, {}};
  for (const auto& [name, shape] : parameter_shapes(config)) draft.weights[name] = initial(name, shape, seed);
  return std::make_unique<BlockDraftTraining>(std::move(draft), loss, std::move(target), compute_dtype);
}

std::unique_ptr<DraftTraining> DraftTraining::load(const std::filesystem::path& folder, const LossOptions& loss,
                                                   std::shared_ptr<const target::Target> target,
                                                   at::ScalarType compute_dtype, device::Runtime&) {
  check_dtype(compute_dtype);
  check_loss_options(loss);
  DraftFolder draft = read_draft(folder, at::kFloat, *target);
  return std::make_unique<BlockDraftTraining>(std::move(draft), loss, std::move(target), compute_dtype);
}

}  // namespace pacer::draft
