#include "pacer/draft/training.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "pacer/base/error.h"
#include "pacer/base/random.h"
#include "pacer/device/indices.h"
#include "pacer/device/kernels.h"
#include "pacer/draft/backbone.h"
#include "pacer/draft/block_batch.h"
#include "pacer/draft/markov.h"
#include "pacer/draft/training_lane.h"
#include "pacer/draft/training_loss.h"
#include "pacer/draft/warm_start.h"
#include "pacer/draft/weights.h"
#include "pacer/nn/vocab_loss.h"
#include "pacer/target/rope_frequencies.h"

namespace pacer::draft {
namespace {

DraftWeights on_device(DraftWeights weights, c10::Device device) {
  for (auto& [name, weight] : weights) weight = weight.to(device);
  return weights;
}

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
        model_{config_,  loss_,    *target_, dtype_,        device_, backbone_,
               masters_, weights_, markov_,  teacher_head_, head_} {
    for (auto& [name, master] : masters_) master = master.detach().clone().requires_grad_(true);
    make_lanes(1);
  }

  const DraftConfig& config() const override { return config_; }
  std::map<std::string, at::Tensor>& parameters() override { return masters_; }

  void refresh() override { lanes_.front()->refresh(); }

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
    std::vector<at::Tensor> gradients;  // f32 sums over the parts, undefined where no block sees a context
    void backward();
  };
  struct Part {
    int64_t begin, end;  // blocks
    LiveSlots live;
  };

  at::Tensor there(const at::Tensor& tensor) const { return tensor.defined() ? tensor.to(device_) : tensor; }
  nn::RopeRows there(const nn::RopeRows& rows) const { return {there(rows.cos), there(rows.sin)}; }
  void make_lanes(int64_t count);
  Context context_pass(const FeatureBatch& batch, const BlockBatch& blocks);
  std::vector<Part> parts(const BlockPlan& plan, const LiveSlots& live) const;
  std::vector<PartResult> some_parts(const StepInput& step, std::span<const Part> parts);
  void collect(TrainingLane& lane, const PartResult& part, Context& context);
  void collect_leaves(TrainingLane& lane);
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
  at::Tensor teacher_head_, head_;  // [n, H] frozen rows of the target's head: its dtype, and the compute dtype
  TrainingModel model_;
  std::vector<std::unique_ptr<TrainingLane>> lanes_;  // at least one
  RopeCache rope_cache_;
};

void BlockDraftTraining::make_lanes(int64_t count) {
  if (static_cast<int64_t>(lanes_.size()) == count) return;
  lanes_.clear();
  const int64_t bytes = logits_bytes(loss_, head_.size(0), count);
  for (int64_t i = 0; i < count; ++i) lanes_.push_back(std::make_unique<TrainingLane>(model_, bytes));
}

// Keys and values of every layer, by the leaves of the first lane.
BlockDraftTraining::Context BlockDraftTraining::context_pass(const FeatureBatch& batch, const BlockBatch& blocks) {
  // Picked where they are: of the features only what blocks see goes to the device.
  const at::Tensor picked =
      batch.tapped.index_select(0, device::as_indices(blocks.context_rows, batch.tapped.device()));
  const at::Tensor tapped = picked.to(device_, dtype_);
  const nn::RopeRows positions = there(rope_cache_.rows(backbone_.rope(), blocks.context_positions));
  const BackboneWeights& weights = lanes_.front()->weights();
  const at::Tensor rows = backbone_.context(weights, tapped);
  Context context;
  for (const LayerWeights& layer : weights.layers) {
    const KeysValues keys = backbone_.context_keys(layer, rows, positions);
    context.made.push_back(keys.k), context.made.push_back(keys.v);
  }
  context.gradients.resize(context.made.size());
  return context;
}

void BlockDraftTraining::Context::backward() {
  torch::autograd::variable_list outputs, sums;
  for (size_t i = 0; i < made.size(); ++i) {
    if (!gradients[i].defined()) continue;
    outputs.push_back(made[i]), sums.push_back(gradients[i].to(made[i].scalar_type()));
  }
  torch::autograd::backward(outputs, sums);
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

void BlockDraftTraining::collect_leaves(TrainingLane& lane) {
  const at::NoGradGuard no_grad;
  lane.collect([this](const std::string& name, const at::Tensor& gradient) { add_gradient(name, gradient); });
}

// Adds the gradients of a part to the sums, which are f32.
void BlockDraftTraining::collect(TrainingLane& lane, const PartResult& part, Context& context) {
  const at::NoGradGuard no_grad;
  if (part.d_w1_rows.defined()) gradient_of(kMarkovW1).index_add_(0, part.w1_rows, part.d_w1_rows.to(at::kFloat));
  if (part.d_w2.defined()) add_gradient(kMarkovW2, part.d_w2);
  lane.collect_context([&context](size_t i, const at::Tensor& gradient) {
    at::Tensor& sum = context.gradients[i];
    sum = sum.defined() ? sum.add_(gradient) : gradient.to(at::kFloat);
  });
  collect_leaves(lane);
}

// Those that have live slots.
std::vector<BlockDraftTraining::Part> BlockDraftTraining::parts(const BlockPlan& plan, const LiveSlots& live) const {
  const int64_t row_bytes = config_.layer.hidden_size * static_cast<int64_t>(c10::elementSize(dtype_));
  const auto lanes = static_cast<int64_t>(lanes_.size());
  const int64_t slots = plan.block_size, per_part = blocks_of_a_part(loss_, plan.blocks(), slots, row_bytes, lanes);
  std::vector<Part> parts;
  for (int64_t begin = 0; begin < plan.blocks(); begin += per_part) {
    const int64_t end = std::min(begin + per_part, plan.blocks());
    LiveSlots some = slots_between(live, begin * slots, end * slots);
    if (!some.slot.empty()) parts.push_back({begin, end, std::move(some)});
  }
  return parts;
}

// As many as there are lanes, or fewer, at the same time. One alone has all threads for its operations.
std::vector<PartResult> BlockDraftTraining::some_parts(const StepInput& step, std::span<const Part> parts) {
  std::vector<PartResult> results(parts.size());
  const auto compute = [&](size_t i) {
    const bool shared_sum = i == 0 && step.backward && config_.markov != MarkovKind::none;
    const at::Tensor d_w2 = shared_sum ? gradient_of(kMarkovW2) : at::Tensor();
    results[i] = lanes_[i]->part(step, parts[i].begin, parts[i].end, parts[i].live, d_w2);
  };
  if (parts.size() == 1) {
    compute(0);
  } else {
    // Within this loop an operation has one thread.
    at::parallel_for(0, static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) compute(static_cast<size_t>(i));
    });
  }
  return results;
}

LossTerms BlockDraftTraining::loss(const FeatureBatch& given, const BlockPlan& plan, const LossScale& scale,
                                   bool backward) {
  const PackedTokens tokens = host_tokens(given);
  const LiveSlots live = live_slots(config_, plan, tokens.ids.data());
  LiveLosses losses;
  if (live.slot.empty()) return sum_terms(config_, plan, live, losses);
  const at::AutoGradMode grad_mode(backward);
  const int64_t threads = device::own_kernels(device_) ? at::get_num_threads() : 1;
  make_lanes(training_lanes(loss_, plan.blocks() * plan.block_size, static_cast<int64_t>(head_.nbytes()), threads));
  const BlockBatch blocks = block_batch(config_, plan, tokens);
  FeatureBatch batch = given;  // states on the device for all parts at once
  batch.last = there(given.last), batch.log_sum = there(given.log_sum);
  Context context = context_pass(batch, blocks);
  for (const auto& lane : lanes_) lane->begin_step(context.made);
  const StepInput step{batch, plan, blocks, scale, backward};
  const std::vector<Part> all = parts(plan, live);
  for (size_t first = 0; first < all.size(); first += lanes_.size()) {
    const size_t count = std::min(lanes_.size(), all.size() - first);
    const std::vector<PartResult> results = some_parts(step, std::span(all).subspan(first, count));
    for (size_t i = 0; i < count; ++i) {
      losses.append(results[i].losses);
      if (backward) collect(*lanes_[i], results[i], context);
    }
  }
  if (backward) {
    context.backward();
    collect_leaves(*lanes_.front());
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
