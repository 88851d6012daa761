#include "pacer/draft/training_lane.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/autograd.h>

#include "pacer/device/device_memory.h"
#include "pacer/device/indices.h"
#include "pacer/nn/linear.h"

namespace pacer::draft {
namespace {

constexpr const char* kConfidenceWeight = "confidence_head.proj.weight";
constexpr const char* kConfidenceBias = "confidence_head.proj.bias";

at::Tensor floats(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}, at::kFloat).clone();
}

std::vector<float> to_vector(const at::Tensor& tensor) {
  const at::Tensor dense = device::to_host(tensor.detach().to(at::kFloat)).contiguous();
  const float* data = dense.const_data_ptr<float>();
  return {data, data + dense.numel()};
}

at::Tensor leaf_of(const at::Tensor& values) { return values.detach().requires_grad_(true); }

}  // namespace

TrainingLane::TrainingLane(const TrainingModel& model, int64_t tile_bytes)
    : model_(model), weights_(model.weights), markov_(model.markov), vocab_loss_(tile_bytes) {
  link(weights_.fc, {"fc.weight"});
  link(weights_.hidden_norm, {"hidden_norm.weight"});
  link(weights_.norm, {"norm.weight"});
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    LayerWeights& layer = weights_.layers[i];
    const std::string at = "layers." + std::to_string(i) + ".", attention = at + "self_attn.", mlp = at + "mlp.";
    link(layer.input_norm, {at + "input_layernorm.weight"});
    link(layer.post_norm, {at + "post_attention_layernorm.weight"});
    link(layer.q, {attention + "q_proj.weight"});
    link(layer.q_bias, {attention + "q_proj.bias"});
    link(layer.kv, {attention + "k_proj.weight", attention + "v_proj.weight"});
    link(layer.kv_bias, {attention + "k_proj.bias", attention + "v_proj.bias"});
    link(layer.q_norm, {attention + "q_norm.weight"});
    link(layer.k_norm, {attention + "k_norm.weight"});
    link(layer.o, {attention + "o_proj.weight"});
    link(layer.o_bias, {attention + "o_proj.bias"});
    link(layer.gate_up, {mlp + "gate_proj.weight", mlp + "up_proj.weight"});
    link(layer.down, {mlp + "down_proj.weight"});
  }
  link(markov_.w2, {kMarkovW2});
  const std::string projection = markov_.kind == MarkovKind::gated ? "gate_proj" : "joint_proj";
  link(markov_.projection, {"markov_head." + projection + ".weight"});
  link(markov_.projection_bias, {"markov_head." + projection + ".bias"});
  if (model.config.confidence_head) {
    confidence_weight_ = model.masters.at(kConfidenceWeight), confidence_bias_ = model.masters.at(kConfidenceBias);
    link(confidence_weight_, {kConfidenceWeight});
    link(confidence_bias_, {kConfidenceBias});
  }
}

// Puts a leaf in the place of `weight`.
void TrainingLane::link(at::Tensor& weight, std::initializer_list<std::string> masters) {
  if (!weight.defined()) return;
  weight = leaf_of(weight);
  int64_t row = 0;
  for (const std::string& name : masters) {
    const int64_t rows = model_.masters.at(name).size(0);
    links_.push_back({weight, row, row + rows, name});
    row += rows;
  }
}

void TrainingLane::refresh() {
  const at::NoGradGuard no_grad;
  for (const Link& link : links_) {
    const at::Tensor& master = model_.masters.at(link.master);
    const at::Tensor copy = link.leaf.slice(0, link.begin, link.end);
    if (!copy.is_alias_of(master)) copy.copy_(master);
  }
}

at::Tensor TrainingLane::indices(const at::Tensor& numbers) const { return device::as_indices(numbers, model_.device); }

void TrainingLane::begin_step(const std::vector<at::Tensor>& context) {
  context_.clear();
  for (const at::Tensor& made : context) context_.push_back(made.detach().requires_grad_(made.requires_grad()));
}

void TrainingLane::collect(const std::function<void(const std::string&, const at::Tensor&)>& add) {
  for (const Link& link : links_) {
    const at::Tensor& gradient = link.leaf.grad();
    if (gradient.defined()) add(link.master, gradient.slice(0, link.begin, link.end));
  }
  for (Link& link : links_) link.leaf.mutable_grad().reset();
}

void TrainingLane::collect_context(const std::function<void(size_t, const at::Tensor&)>& add) {
  for (size_t i = 0; i < context_.size(); ++i) {
    at::Tensor& gradient = context_[i].mutable_grad();
    if (!gradient.defined()) continue;
    add(i, gradient);
    gradient.reset();
  }
}

// [B * K, H] behind the final norm.
at::Tensor TrainingLane::block_pass(const BlockBatch& blocks) {
  const nn::RopeRows rope = rope_cache_.rows(model_.backbone.rope(), blocks.positions);
  const nn::RopeRows positions{there(rope.cos), there(rope.sin)};
  at::Tensor x = model_.target.embedding_weight().index_select(0, indices(blocks.ids)).to(model_.dtype);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const KeysValues keys{context_[2 * i], context_[2 * i + 1]};
    x = model_.backbone.layer(weights_.layers[i], static_cast<int64_t>(i), x, keys, blocks.layout, positions);
  }
  return model_.backbone.final_norm(weights_, x);
}

nn::VocabLossInput TrainingLane::loss_input(const StepInput& step, const LiveSlots& live, const at::Tensor& hidden,
                                            const MarkovRows& markov, const at::Tensor& d_w2) const {
  const DraftConfig& config = model_.config;
  const LossOptions& options = model_.loss;
  nn::VocabLossInput input;
  input.hidden = hidden.detach();
  input.head = model_.head;
  if (markov.u.defined()) {
    input.markov = markov.u.detach(), input.markov_out = markov_.w2.detach(), input.markov_row = markov.u_row;
    input.d_markov_out = d_w2;
  }
  const bool wants_teacher = !step.backward || options.l1_alpha != 0 ||
                             (config.confidence_head && options.confidence_alpha != 0) ||
                             (options.soft_labels && options.ce_alpha != 0);
  if (wants_teacher) {
    input.teacher = step.batch.last;
    input.teacher_head = model_.target.head_weight();
    input.teacher_row = live.teacher_row;
    input.kept_ids = config.kept_ids;
    input.renormalised = options.renormalised_teacher;
    if (step.batch.log_sum.defined() && config.reduced() && !options.renormalised_teacher) {
      input.teacher_log_sum = step.batch.log_sum;
      input.teacher_kept_head = model_.teacher_head;
    }
  }
  input.label = live.label;
  input.soft = options.soft_labels && wants_teacher;
  for (const float weight : live.weight) {
    input.ce_scale.push_back(static_cast<float>(static_cast<double>(weight) * step.scale.ce));
    input.l1_scale.push_back(static_cast<float>(static_cast<double>(weight) * step.scale.l1));
  }
  input.gradient = step.backward;
  return input;
}

// In f32: the head is one row, and its target is a probability. `e` are the live slots' rows of W1, f32.
at::Tensor TrainingLane::confidence_logits(const at::Tensor& hidden, const at::Tensor& e) const {
  const at::Tensor wide = hidden.to(at::kFloat),
                   features = model_.config.confidence_with_markov ? at::cat({wide, e}, 1) : wide;
  return nn::linear(features, confidence_weight_, confidence_bias_).flatten();
}

// A bias that a slot gets from its previous token alone is the same for all slots behind one position.
TrainingLane::MarkovRows TrainingLane::markov_rows(const StepInput& step, const BlockBatch& blocks,
                                                   const LiveSlots& live, int64_t first_slot,
                                                   const at::Tensor& hidden) const {
  const at::Tensor slots = indices(index_tensor(live.slot));
  MarkovRows rows;
  rows.ids = indices(blocks.previous_ids);
  if (markov_.kind != MarkovKind::vanilla) {
    rows.e = leaf_rows(rows.ids, step.backward), rows.e_row = live.slot;
    rows.u = markov_blocks(markov_, rows.e, hidden, step.plan.block_size).index_select(0, slots);
    return rows;
  }
  std::vector<int64_t> previous, first;  // packed rows, and a slot that each stands before
  for (const int64_t slot : live.slot) {
    previous.push_back(step.plan.previous_row[static_cast<size_t>(first_slot + slot)]);
  }
  std::vector<int64_t> distinct = previous;
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  first.resize(distinct.size());
  for (size_t i = 0; i < previous.size(); ++i) {
    const auto at = std::ranges::lower_bound(distinct, previous[i]) - distinct.begin();
    rows.e_row.push_back(at);
    first[static_cast<size_t>(at)] = live.slot[i];
  }
  rows.ids = rows.ids.index_select(0, indices(index_tensor(first)));
  rows.e = rows.u = leaf_rows(rows.ids, step.backward), rows.u_row = rows.e_row;
  return rows;
}

// Rows of W1 as a leaf, so that no [V, r] gradient is made on the way.
at::Tensor TrainingLane::leaf_rows(const at::Tensor& ids, bool backward) const {
  return model_.masters.at(kMarkovW1).detach().index_select(0, ids).to(model_.dtype).requires_grad_(backward);
}

PartResult TrainingLane::part(const StepInput& step, int64_t begin, int64_t end, const LiveSlots& live,
                              const at::Tensor& d_w2) {
  const at::AutoGradMode grad_mode(step.backward);  // of this thread
  const DraftConfig& config = model_.config;
  const LossOptions& options = model_.loss;
  const BlockBatch blocks = blocks_between(step.blocks, begin, end);
  const at::Tensor hidden = block_pass(blocks);
  const at::Tensor live_hidden = hidden.index_select(0, indices(index_tensor(live.slot)));
  MarkovRows markov;
  if (config.markov != MarkovKind::none) {
    markov = markov_rows(step, blocks, live, begin * step.plan.block_size, hidden);
  }
  const at::Tensor live_e = config.confidence_head && config.confidence_with_markov
                                ? markov.e.to(at::kFloat).index_select(0, indices(index_tensor(markov.e_row)))
                                : at::Tensor();
  const at::Tensor confidence = config.confidence_head ? confidence_logits(live_hidden, live_e) : at::Tensor();

  nn::VocabLossInput input = loss_input(step, live, live_hidden, markov, d_w2);
  PartResult result;
  LiveLosses& losses = result.losses;
  losses.has_teacher = input.teacher.defined();
  losses.ce_weight = live.weight;
  if (options.dynamic_weights()) {
    // The weights need the cross-entropy of whole blocks, whose rows lie in different bands: a pass of its own.
    nn::VocabLossInput first = input;
    first.teacher = at::Tensor(), first.gradient = false, first.soft = false;
    losses.ce_weight = dpace_weights(options, step.plan, live, vocab_loss_(first).ce);
    for (size_t i = 0; i < live.slot.size(); ++i) {
      input.ce_scale[i] = static_cast<float>(static_cast<double>(losses.ce_weight[i]) * step.scale.ce);
    }
  }
  const nn::VocabLossOutput output = vocab_loss_(input);
  losses.ce = output.ce, losses.l1 = output.l1, losses.correct = output.correct;
  if (confidence.defined()) losses.confidence = to_vector(confidence);
  if (!step.backward) return result;

  torch::autograd::variable_list outputs{live_hidden}, gradients{output.d_hidden};
  if (markov.u.defined()) outputs.push_back(markov.u), gradients.push_back(output.d_markov);
  if (confidence.defined() && step.scale.confidence != 0) {
    std::vector<float> d_logits(losses.confidence.size());
    for (size_t i = 0; i < d_logits.size(); ++i) {
      const float accepted = acceptance(output.l1[i]);
      const double slope = confidence_loss(losses.confidence[i], accepted).sigmoid - static_cast<double>(accepted);
      d_logits[i] = static_cast<float>(step.scale.confidence * static_cast<double>(live.weight[i]) * slope);
    }
    outputs.push_back(confidence), gradients.push_back(there(floats(d_logits)));
  }
  torch::autograd::backward(outputs, gradients);
  if (markov.u.defined()) {
    result.w1_rows = markov.ids, result.d_w1_rows = markov.e.grad();
    if (!d_w2.defined()) result.d_w2 = output.d_markov_out;
  }
  return result;
}

}  // namespace pacer::draft
