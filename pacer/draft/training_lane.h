// Parts of a training step: some blocks each, from the keys and values of the context to losses and gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/draft/backbone.h"
#include "pacer/draft/block_batch.h"
#include "pacer/draft/block_plan.h"
#include "pacer/draft/config.h"
#include "pacer/draft/features.h"
#include "pacer/draft/markov.h"
#include "pacer/draft/training.h"
#include "pacer/draft/training_loss.h"
#include "pacer/nn/vocab_loss.h"
#include "pacer/target/target.h"

namespace pacer::draft {

inline constexpr const char* kMarkovW1 = "markov_head.markov_w1.weight";
inline constexpr const char* kMarkovW2 = "markov_head.markov_w2.weight";

// What all lanes read: the compute copies of the masters, and the frozen target.
struct TrainingModel {
  const DraftConfig& config;
  const LossOptions& loss;
  const target::Target& target;
  at::ScalarType dtype;  // of the compute copies
  c10::Device device;
  const Backbone& backbone;
  const DraftWeights& masters;
  const BackboneWeights& weights;
  const MarkovWeights& markov;
  const at::Tensor &teacher_head, &head;  // [n, H] frozen rows of the target's head: its dtype, and the compute dtype
};

// What all parts of a step share. States are on the device.
struct StepInput {
  const FeatureBatch& batch;
  const BlockPlan& plan;
  const BlockBatch& blocks;
  const LossScale& scale;
  bool backward;
};

struct PartResult {
  LiveLosses losses;
  at::Tensor w1_rows, d_w1_rows;  // [E] ids of rows of W1 and their gradients [E, r]; undefined without any
  at::Tensor d_w2;                // [n, r] f32, unless it was added to the caller's
};

// Computes parts one after the other, and beside other lanes: each has leaves of its own, which share the memory of the
// compute copies, and buffers of its own. Whoever drives the lanes adds their gradients up in the order of the parts.
class TrainingLane {
 public:
  // `model` and what it refers to must outlive the lane. tile_bytes: of the logits that exist at once.
  TrainingLane(const TrainingModel& model, int64_t tile_bytes);

  const BackboneWeights& weights() const { return weights_; }  // leaves

  // Copies the masters to the compute copies, which all lanes share.
  void refresh();

  // Before the parts of a step: keys and values of every layer, which are cut off from what made them here: k and v of
  // layer 0, of layer 1, ...: [C, kv_heads, D].
  void begin_step(const std::vector<at::Tensor>& context);

  // Blocks [begin, end) of the plan, whose live slots are `live`, counted from the first block's. With backward their
  // gradients are in the leaves (collect, collect_context) and in the result; that of w2 is added to `d_w2` if defined.
  PartResult part(const StepInput& step, int64_t begin, int64_t end, const LiveSlots& live, const at::Tensor& d_w2);

  // Gives the gradient of every leaf that has one, for rows of a master each, and forgets it.
  void collect(const std::function<void(const std::string& master, const at::Tensor& gradient)>& add);
  // The same for the context: `i` counts as in begin_step.
  void collect_context(const std::function<void(size_t i, const at::Tensor& gradient)>& add);

 private:
  // A leaf, or some rows of one that stands for several parameters, and the master that it follows.
  struct Link {
    at::Tensor leaf;
    int64_t begin, end;  // rows of the leaf
    std::string master;
  };
  struct MarkovRows {
    at::Tensor ids;              // [E] tokens before slots
    at::Tensor e;                // [E, r] W1[ids], a leaf
    at::Tensor u;                // [M, r] what w2 multiplies
    std::vector<int64_t> e_row;  // [R] row of e of each live slot
    std::vector<int64_t> u_row;  // [R] row of u, or empty: every live slot has its own
  };

  void link(at::Tensor& weight, std::initializer_list<std::string> masters);
  at::Tensor there(const at::Tensor& tensor) const { return tensor.defined() ? tensor.to(model_.device) : tensor; }
  at::Tensor indices(const at::Tensor& numbers) const;
  at::Tensor block_pass(const BlockBatch& blocks);
  MarkovRows markov_rows(const StepInput& step, const BlockBatch& blocks, const LiveSlots& live, int64_t first_slot,
                         const at::Tensor& hidden) const;
  at::Tensor leaf_rows(const at::Tensor& ids, bool backward) const;
  at::Tensor confidence_logits(const at::Tensor& hidden, const at::Tensor& e) const;
  nn::VocabLossInput loss_input(const StepInput& step, const LiveSlots& live, const at::Tensor& hidden,
                                const MarkovRows& markov, const at::Tensor& d_w2) const;

  const TrainingModel& model_;
  BackboneWeights weights_;
  MarkovWeights markov_;
  at::Tensor confidence_weight_, confidence_bias_;
  std::vector<Link> links_;
  std::vector<at::Tensor> context_;
  nn::VocabLoss vocab_loss_;
  RopeCache rope_cache_;
};

}  // namespace pacer::draft
