// The golden training batches as Pacer sees them: packed sequences, given anchors, a target that is only its two
// tables.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "pacer/draft/block_plan.h"
#include "pacer/draft/training.h"
#include "pacer/draft/weights.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::draft {

// A target for training: its embedding and its head are all that a draft needs of it.
class TablesTarget : public target::Target {
 public:
  TablesTarget(at::Tensor embedding, at::Tensor head, int64_t layers)
      : embedding_(std::move(embedding)), head_(std::move(head)) {
    config_.vocab_size = embedding_.size(0);
    config_.hidden_size = embedding_.size(1);
    config_.layers = layers;
  }
  const target::ModelConfig& config() const override { return config_; }
  at::ScalarType dtype() const override { return embedding_.scalar_type(); }
  std::unique_ptr<target::KvCache> new_cache(int64_t) const override { throw std::logic_error("no cache here"); }
  target::TargetOutput forward(const target::TokenBatch&, const target::Taps&,
                               const std::vector<target::KvCache*>&) const override {
    throw std::logic_error("no layers here");
  }
  at::Tensor logits(const at::Tensor& last) const override { return at::matmul(last, head_.t()).to(at::kFloat); }
  at::Tensor embedding_weight() const override { return embedding_; }
  at::Tensor head_weight() const override { return head_; }
  at::Tensor weight(const std::string&) const override { throw std::logic_error("no layers here"); }
  uint64_t weight_bytes() const override { return 0; }

 private:
  target::ModelConfig config_;
  at::Tensor embedding_, head_;
};

inline std::vector<int64_t> to_ids(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kLong).contiguous();
  const int64_t* value = wide.const_data_ptr<int64_t>();
  return {value, value + wide.numel()};
}

struct GoldenBatch {
  explicit GoldenBatch(const std::string& folder_)
      : folder(folder_), train(folder_ + "/train.safetensors"), model(folder_ + "/model.safetensors") {}

  DraftConfig config() const { return DraftConfig::from_json(test::golden_json(folder + "/config.json"), folder); }

  std::shared_ptr<const target::Target> target(at::ScalarType dtype = at::kFloat) const {
    const bool inside = model.has("embed_tokens.weight");
    return std::make_shared<TablesTarget>((inside ? model["embed_tokens.weight"] : train["embed_tokens"]).to(dtype),
                                          (inside ? model["lm_head.weight"] : train["lm_head"]).to(dtype),
                                          config().target_layers);
  }

  std::unique_ptr<DraftTraining> training(const LossOptions& options, at::ScalarType dtype = at::kFloat) const {
    device::Runtime runtime = device::Runtime::open("cpu");
    return DraftTraining::load(test::golden(folder), options, target(dtype), dtype, runtime);
  }

  std::vector<int64_t> all_rows() const {
    std::vector<int64_t> rows(static_cast<size_t>(train["input_ids"].size(0)));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    return rows;
  }

  // The given rows of the batch as sequences, padding included: it is never supervised and changes nothing.
  FeatureBatch features(const std::vector<int64_t>& rows, at::ScalarType dtype = at::kFloat) const {
    const at::Tensor ids = train["input_ids"], mask = train["loss_mask"], tapped = train["target_hidden_states"];
    const int64_t length = ids.size(1), width = config().layer.hidden_size;
    const bool has_last = train.has("target_last_hidden_states");
    std::vector<at::Tensor> id_rows, mask_rows, tapped_rows, last_rows;
    FeatureBatch batch;
    batch.starts = {0};
    for (const int64_t row : rows) {
      id_rows.push_back(ids[row]), mask_rows.push_back(mask[row]), tapped_rows.push_back(tapped[row]);
      last_rows.push_back(has_last ? train["target_last_hidden_states"][row] : at::zeros({length, width}));
      batch.starts.push_back(batch.starts.back() + length);
      batch.sample_ids.push_back(static_cast<uint64_t>(row));
    }
    batch.ids = at::cat(id_rows).contiguous();
    batch.supervised = at::cat(mask_rows).to(at::kByte).contiguous();
    batch.tapped = at::cat(tapped_rows).view({batch.starts.back(), -1, width}).to(dtype);
    batch.last = at::cat(last_rows).to(dtype);
    return batch;
  }

  std::vector<std::vector<int64_t>> anchors(const std::vector<int64_t>& rows) const {
    const at::Tensor positions = train["anchor_positions"], keep = train["block_keep_mask"];
    std::vector<std::vector<int64_t>> lists;
    for (const int64_t row : rows) {
      lists.emplace_back();
      for (int64_t i = 0; i < keep.size(1); ++i) {
        if (keep[row][i].item<bool>()) lists.back().push_back(positions[row][i].item<int64_t>());
      }
    }
    return lists;
  }

  BlockPlan plan(const LossOptions& options, const FeatureBatch& batch, const std::vector<int64_t>& rows) const {
    const std::vector<int64_t> ids = to_ids(batch.ids), mask = to_ids(batch.supervised);
    const std::vector<uint8_t> supervised(mask.begin(), mask.end());
    return plan_blocks(config(), options, {ids, supervised, batch.starts, batch.sample_ids}, anchors(rows));
  }

  // DeepSpec's settings of the case; null gamma means no decay.
  LossOptions options() const {
    const auto json = test::golden_json(folder + "/train.json");
    const auto number = [&json](const char* name, double absent) {
      return json.contains(name) && !json[name].is_null() ? json[name].get<double>() : absent;
    };
    LossOptions options;
    options.ce_alpha = number("ce_loss_alpha", 1.0);
    options.l1_alpha = number("l1_loss_alpha", 0.0);
    options.confidence_alpha = number("confidence_head_alpha", 0.0);
    options.decay_gamma = number("loss_decay_gamma", 0.0);
    return options;
  }

  // [B, N, ...] -> [live blocks, ...] in plan order.
  at::Tensor live_blocks(const at::Tensor& golden) const {
    const at::Tensor keep = train["block_keep_mask"];
    std::vector<at::Tensor> blocks;
    for (int64_t row = 0; row < keep.size(0); ++row) {
      for (int64_t i = 0; i < keep.size(1); ++i) {
        if (keep[row][i].item<bool>()) blocks.push_back(golden[row][i]);
      }
    }
    return at::stack(blocks);
  }

  std::string folder;
  test::GoldenTensors train, model;
};

inline void expect_relative(double value, double expected, double bound, const std::string& what) {
  EXPECT_NEAR(value, expected, bound * std::abs(expected)) << what;
}

// Every trained tensor has a golden gradient in most files; a subset in some.
inline void expect_gradients(DraftTraining& training, const test::GoldenTensors& golden, size_t least,
                             double factor = 1.0) {
  size_t compared = 0;
  for (const auto& [name, master] : training.parameters()) {
    if (!golden.has("grad." + name)) continue;
    ++compared;
    ASSERT_TRUE(master.grad().defined()) << name;
    EXPECT_TRUE(test::close_l2(master.grad() * factor, golden["grad." + name], 1e-4)) << name;
  }
  EXPECT_GE(compared, least);
}

}  // namespace pacer::draft
