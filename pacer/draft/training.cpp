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
#include "pacer/device/device_memory.h"
#include "pacer/device/indices.h"
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
  const at::Tensor dense = device::to_host(tensor.detach().to(at::kFloat)).contiguous();
  const float* data = dense.const_data_ptr<float>();
  return {data, data + dense.numel()};
}

DraftWeights on_device(DraftWeights weights, c10::Device device) {
  for (auto& [name, weight] : weights) weight = weight.to(device);
  return weights;
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
        device_(target_->device()),
        masters_(on_device(std::move(draft.weights), device_)),
        backbone_(config_, target::rope_table(config_.layer.rope, config_.layer.head_dim, config_.layer.max_position)),
        weights_(draft::arrange(config_, masters_, dtype)),
        markov_(arrange_markov(config_, masters_, dtype, device_)),
        teacher_head_(draft_head(config_, *target_)),
        head_(teacher_head_.to(dtype)),
        vocab_loss_(logits_bytes(loss, head_.size(0))) {
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

  bool wants_log_sums() const override { return config_.reduced() && !loss_.renormalised_teacher; }

  at::Tensor teacher_log_sums(const at::Tensor& last) const override {
    if (!wants_log_sums()) return {};
    return nn::log_sum_rows(there(last), target_->head_weight()).to(last.device());
  }

  BlockPlan plan(const FeatureBatch& batch, int64_t anchors_per_sequence, const StepRandom& random) const override {
    return plan_blocks(config_, loss_, host_tokens(batch), anchors_per_sequence, random);
  }

  LossTerms loss(const FeatureBatch& batch, const BlockPlan& plan, const LossScale& scale, bool backward) override;

  void save(const std::filesystem::path& folder, at::ScalarType dtype, bool with_frozen) const override {
    write_draft(folder, {config_, masters_}, dtype, with_frozen ? target_.get() : nullptr);
  }

 private:
  struct Context {
    std::vector<at::Tensor> made;       // k and v of layer 0, of layer 1, ...: [C, kv_heads, D]
    std::vector<at::Tensor> leaves;     // the same values
    std::vector<at::Tensor> gradients;  // f32 sums of the leaves' gradients, undefined where no block sees a context
    void collect();
    void backward();
  };
  struct MarkovRows {
    at::Tensor ids;              // [E] tokens before slots
    at::Tensor e;                // [E, r] W1[ids], a leaf
    at::Tensor u;                // [M, r] what w2 multiplies
    std::vector<int64_t> e_row;  // [R] row of e of each live slot
    std::vector<int64_t> u_row;  // [R] row of u, or empty: every live slot has its own
  };

  void link();
  at::Tensor there(const at::Tensor& tensor) const { return tensor.defined() ? tensor.to(device_) : tensor; }
  at::Tensor indices(const at::Tensor& numbers) const { return device::as_indices(numbers, device_); }
  nn::RopeRows there(const nn::RopeRows& rows) const { return {there(rows.cos), there(rows.sin)}; }
  Context context_pass(const FeatureBatch& batch, const BlockBatch& blocks);
  at::Tensor block_pass(const BlockBatch& blocks, const Context& context);
  LiveLosses part_losses(const FeatureBatch& batch, const BlockPlan& plan, const BlockBatch& blocks,
                         const LiveSlots& live, int64_t first_slot, const Context& context, const LossScale& scale,
                         bool backward);
  nn::VocabLossInput loss_input(const FeatureBatch& batch, const LiveSlots& live, const at::Tensor& hidden,
                                const MarkovRows& markov, const LossScale& scale, bool backward);
  MarkovRows markov_rows(const BlockBatch& blocks, const BlockPlan& plan, const LiveSlots& live, int64_t first_slot,
                         const at::Tensor& hidden, bool backward) const;
  at::Tensor leaf_rows(const at::Tensor& ids, bool backward) const;
  at::Tensor confidence_logits(const at::Tensor& hidden, const at::Tensor& e) const;
  void collect_gradients();
  at::Tensor& gradient_of(const std::string& name);  // of a master, zero at first
  void add_gradient(const std::string& name, const at::Tensor& gradient);

  DraftConfig config_;
  LossOptions loss_;
  std::shared_ptr<const target::Target> target_;
  at::ScalarType dtype_;
  c10::Device device_;
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

// Keys and values of every layer, cut off from what made them: the gradients of many parts meet there.
BlockDraftTraining::Context BlockDraftTraining::context_pass(const FeatureBatch& batch, const BlockBatch& blocks) {
  // Picked where they are: of the features only what blocks see goes to the device.
  const at::Tensor picked =
      batch.tapped.index_select(0, device::as_indices(blocks.context_rows, batch.tapped.device()));
  const at::Tensor tapped = picked.to(device_, dtype_);
  const nn::RopeRows positions = there(rope_cache_.rows(backbone_.rope(), blocks.context_positions));
  const at::Tensor rows = backbone_.context(weights_, tapped);
  Context context;
  for (const LayerWeights& layer : weights_.layers) {
    const KeysValues keys = backbone_.context_keys(layer, rows, positions);
    for (const at::Tensor& made : {keys.k, keys.v}) {
      context.made.push_back(made);
      context.leaves.push_back(made.detach().requires_grad_(made.requires_grad()));
    }
  }
  return context;
}

// Moves the gradients of one part to the sums, which are f32.
void BlockDraftTraining::Context::collect() {
  const at::NoGradGuard no_grad;
  if (gradients.empty()) gradients.resize(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    at::Tensor& gradient = leaves[i].mutable_grad();
    if (!gradient.defined()) continue;
    gradients[i] = gradients[i].defined() ? gradients[i].add_(gradient) : gradient.to(at::kFloat);
    gradient.reset();
  }
}

void BlockDraftTraining::Context::backward() {
  torch::autograd::variable_list outputs, sums;
  for (size_t i = 0; i < made.size(); ++i) {
    if (!gradients[i].defined()) continue;
    outputs.push_back(made[i]), sums.push_back(gradients[i].to(made[i].scalar_type()));
  }
  torch::autograd::backward(outputs, sums);
}

// [B * K, H] behind the final norm.
at::Tensor BlockDraftTraining::block_pass(const BlockBatch& blocks, const Context& context) {
  const nn::RopeRows positions = there(rope_cache_.rows(backbone_.rope(), blocks.positions));
  at::Tensor x = target_->embedding_weight().index_select(0, indices(blocks.ids)).to(dtype_);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const KeysValues keys{context.leaves[2 * i], context.leaves[2 * i + 1]};
    x = backbone_.layer(weights_.layers[i], static_cast<int64_t>(i), x, keys, blocks.layout, positions);
  }
  return backbone_.final_norm(weights_, x);
}

nn::VocabLossInput BlockDraftTraining::loss_input(const FeatureBatch& batch, const LiveSlots& live,
                                                  const at::Tensor& hidden, const MarkovRows& markov,
                                                  const LossScale& scale, bool backward) {
  nn::VocabLossInput input;
  input.hidden = hidden.detach();
  input.head = head_;
  if (markov.u.defined()) {
    input.markov = markov.u.detach(), input.markov_out = markov_.w2.detach(), input.markov_row = markov.u_row;
    if (backward) input.d_markov_out = gradient_of(kW2);
  }
  const bool wants_teacher =
      !backward || loss_.l1_alpha != 0 || (config_.confidence_head && loss_.confidence_alpha != 0);
  if (wants_teacher) {
    input.teacher = there(batch.last);
    input.teacher_head = target_->head_weight();
    input.teacher_row = live.teacher_row;
    input.kept_ids = config_.kept_ids;
    input.renormalised = loss_.renormalised_teacher;
    if (batch.log_sum.defined() && config_.reduced() && !loss_.renormalised_teacher) {
      input.teacher_log_sum = there(batch.log_sum);
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

// In f32: the head is one row, and its target is a probability. `e` are the live slots' rows of W1, f32.
at::Tensor BlockDraftTraining::confidence_logits(const at::Tensor& hidden, const at::Tensor& e) const {
  const at::Tensor wide = hidden.to(at::kFloat),
                   features = config_.confidence_with_markov ? at::cat({wide, e}, 1) : wide;
  return nn::linear(features, masters_.at(kConfidenceWeight), masters_.at(kConfidenceBias)).flatten();
}

// A bias that a slot gets from its previous token alone is the same for all slots behind one position.
BlockDraftTraining::MarkovRows BlockDraftTraining::markov_rows(const BlockBatch& blocks, const BlockPlan& plan,
                                                               const LiveSlots& live, int64_t first_slot,
                                                               const at::Tensor& hidden, bool backward) const {
  const at::Tensor slots = indices(index_tensor(live.slot));
  MarkovRows rows;
  rows.ids = indices(blocks.previous_ids);
  if (markov_.kind != MarkovKind::vanilla) {
    rows.e = leaf_rows(rows.ids, backward), rows.e_row = live.slot;
    rows.u = markov_blocks(markov_, rows.e, hidden, plan.block_size).index_select(0, slots);
    return rows;
  }
  std::vector<int64_t> previous, first;  // packed rows, and a slot that each stands before
  for (const int64_t slot : live.slot) previous.push_back(plan.previous_row[static_cast<size_t>(first_slot + slot)]);
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
  rows.e = rows.u = leaf_rows(rows.ids, backward), rows.u_row = rows.e_row;
  return rows;
}

// Rows of W1 as a leaf, so that no [V, r] gradient is made on the way.
at::Tensor BlockDraftTraining::leaf_rows(const at::Tensor& ids, bool backward) const {
  return masters_.at(kW1).detach().index_select(0, ids).to(dtype_).requires_grad_(backward);
}

at::Tensor& BlockDraftTraining::gradient_of(const std::string& name) {
  at::Tensor& gradient = masters_.at(name).mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(masters_.at(name).detach());
  return gradient;
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
  const at::NoGradGuard no_grad;
  for (const Link& link : links_) {
    const at::Tensor& gradient = link.compute.grad();
    if (gradient.defined()) add_gradient(link.master, gradient.slice(0, link.begin, link.end));
  }
  for (Link& link : links_) link.compute.mutable_grad().reset();
}

// Losses of some blocks; their gradients are in the compute copies, the context's leaves and the Markov masters.
LiveLosses BlockDraftTraining::part_losses(const FeatureBatch& batch, const BlockPlan& plan, const BlockBatch& blocks,
                                           const LiveSlots& live, int64_t first_slot, const Context& context,
                                           const LossScale& scale, bool backward) {
  const at::Tensor hidden = block_pass(blocks, context);
  const at::Tensor live_hidden = hidden.index_select(0, indices(index_tensor(live.slot)));
  MarkovRows markov;
  if (config_.markov != MarkovKind::none) markov = markov_rows(blocks, plan, live, first_slot, hidden, backward);
  const at::Tensor live_e = config_.confidence_head && config_.confidence_with_markov
                                ? markov.e.to(at::kFloat).index_select(0, indices(index_tensor(markov.e_row)))
                                : at::Tensor();
  const at::Tensor confidence = config_.confidence_head ? confidence_logits(live_hidden, live_e) : at::Tensor();

  nn::VocabLossInput input = loss_input(batch, live, live_hidden, markov, scale, backward);
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
  if (confidence.defined()) losses.confidence = to_vector(confidence);
  if (!backward) return losses;

  torch::autograd::variable_list outputs{live_hidden}, gradients{output.d_hidden};
  if (markov.u.defined()) outputs.push_back(markov.u), gradients.push_back(output.d_markov);
  if (confidence.defined() && scale.confidence != 0) {
    std::vector<float> d_logits(losses.confidence.size());
    for (size_t i = 0; i < d_logits.size(); ++i) {
      const float accepted = acceptance(output.l1[i]);
      const double slope = confidence_loss(losses.confidence[i], accepted).sigmoid - static_cast<double>(accepted);
      d_logits[i] = static_cast<float>(scale.confidence * static_cast<double>(live.weight[i]) * slope);
    }
    outputs.push_back(confidence), gradients.push_back(there(floats(d_logits)));
  }
  torch::autograd::backward(outputs, gradients);
  const at::NoGradGuard no_grad;
  if (markov.u.defined()) gradient_of(kW1).index_add_(0, markov.ids, markov.e.grad().to(at::kFloat));
  return losses;
}

LossTerms BlockDraftTraining::loss(const FeatureBatch& given, const BlockPlan& plan, const LossScale& scale,
                                   bool backward) {
  const PackedTokens tokens = host_tokens(given);
  const LiveSlots live = live_slots(config_, plan, tokens.ids.data());
  LiveLosses losses;
  if (live.slot.empty()) return sum_terms(config_, plan, live, losses);
  const at::AutoGradMode grad_mode(backward);
  const BlockBatch blocks = block_batch(config_, plan, tokens);
  FeatureBatch batch = given;  // states on the device for all parts at once
  batch.last = there(given.last), batch.log_sum = there(given.log_sum);
  Context context = context_pass(batch, blocks);
  const int64_t row_bytes = config_.layer.hidden_size * static_cast<int64_t>(c10::elementSize(dtype_));
  const int64_t slots = plan.block_size, per_part = blocks_of_a_part(loss_, plan.blocks(), slots, row_bytes);
  for (int64_t begin = 0; begin < plan.blocks(); begin += per_part) {
    const int64_t end = std::min(begin + per_part, plan.blocks());
    const LiveSlots some = slots_between(live, begin * slots, end * slots);
    if (some.slot.empty()) continue;
    losses.append(
        part_losses(batch, plan, blocks_between(blocks, begin, end), some, begin * slots, context, scale, backward));
    if (!backward) continue;
    context.collect();
    collect_gradients();
  }
  if (backward) {
    context.backward();
    collect_gradients();
  }
  return sum_terms(config_, plan, live, losses);
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
  stream.fill_normal(weight.mutable_data_ptr<float>(), static_cast<size_t>(weight.numel()));
  return weight.mul_(0.02);
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
