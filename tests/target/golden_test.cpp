// Every model of tests/golden against the reference's stored values.
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>

#include "pacer/target/autograd_forward.h"
#include "pacer/target/target.h"
#include "pacer/target/weights.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::target {
namespace {

using test::GoldenTensors;

const std::vector<std::string> kModels = {
    "llama_tiny/default",     "llama_tiny/mha_bias",       "llama_tiny/mqa_headdim", "llama_tiny/tied_sharded",
    "llama_tiny/rope_llama3", "llama_tiny/rope_linear",    "llama_tiny/rope_yarn",   "qwen2_tiny/untied",
    "qwen2_tiny/tied",        "qwen2_tiny/sliding_window", "qwen3_tiny/untied",      "qwen3_tiny/tied",
    "qwen3_tiny/yarn_sharded"};

std::vector<int64_t> ids_of(const at::Tensor& row) {
  const at::Tensor dense = row.to(at::kLong).contiguous().flatten();
  return {dense.const_data_ptr<int64_t>(), dense.const_data_ptr<int64_t>() + dense.numel()};
}

std::vector<std::vector<int64_t>> rows_of(const at::Tensor& ids) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < ids.size(0); ++i) rows.push_back(ids_of(ids[i]));
  return rows;
}

// The rows that a padding mask keeps, as the sequences they are.
std::vector<std::vector<int64_t>> unpadded(const at::Tensor& ids, const at::Tensor& mask) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < ids.size(0); ++i) rows.push_back(ids_of(ids[i].masked_select(mask[i].to(at::kBool))));
  return rows;
}

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Target> load(at::ScalarType dtype) { return Target::load(test::golden(GetParam()), dtype, runtime_); }
  GoldenTensors expected() const { return GoldenTensors(GetParam() + "/expected.safetensors"); }
  // Those have logits in bf16 but no hidden states, and no padded prompts.
  static bool scaled_rope() { return GetParam().find("/rope_") + 1 != 0 || GetParam() == "qwen3_tiny/yarn_sharded"; }
  static Taps all_taps(const Target& target) {
    Taps taps;
    for (int64_t i = -1; i <= target.config().layers - 2; ++i) taps.push_back(i);
    return taps;
  }

  device::Runtime runtime_ = device::Runtime::open("cpu");
};

TEST_P(Golden, HiddenStatesAndLogitsInF32) {
  const auto target = load(at::kFloat);
  const GoldenTensors golden = expected();
  const Taps taps = all_taps(*target);
  const TokenBatch batch = TokenBatch::packed(rows_of(golden["input_ids"]));
  const TargetOutput output = target->forward(batch, taps);
  for (size_t i = 0; i < taps.size(); ++i) {
    const std::string name = taps[i] < 0 ? "f32.embed_out" : "f32.layer_out." + std::to_string(taps[i]);
    EXPECT_TRUE(test::close(output.tapped.select(1, static_cast<int64_t>(i)), golden[name].flatten(0, 1))) << name;
  }
  EXPECT_TRUE(test::close(output.last, golden["f32.final_norm_out"].flatten(0, 1)));
  EXPECT_TRUE(test::close(target->logits(output.last), golden["f32.logits"].flatten(0, 1)));
}

// Within a hundredth although kernels differ: only because every rounding stands where the reference has it.
TEST_P(Golden, HiddenStatesAndLogitsInBf16) {
  const auto target = load(at::kBFloat16);
  const GoldenTensors golden = expected();
  const Taps taps = all_taps(*target);
  const TargetOutput output = target->forward(TokenBatch::packed(rows_of(golden["input_ids"])), taps);
  EXPECT_TRUE(test::close_l2(target->logits(output.last), golden["bf16.logits"].flatten(0, 1), 1e-2));
  ASSERT_EQ(golden.has("bf16.embed_out"), !scaled_rope());
  if (scaled_rope()) return;
  for (size_t i = 0; i < taps.size(); ++i) {
    const std::string name = taps[i] < 0 ? "bf16.embed_out" : "bf16.layer_out." + std::to_string(taps[i]);
    const at::Tensor tapped = output.tapped.select(1, static_cast<int64_t>(i));
    EXPECT_TRUE(test::close_l2(tapped, golden[name].flatten(0, 1), 1e-2)) << name;
  }
  EXPECT_TRUE(test::close_l2(output.last, golden["bf16.final_norm_out"].flatten(0, 1), 1e-2));
}

// Token by token through the cache, with the distance to the runner-up at each step.
TEST_P(Golden, GreedyIdsAndMargins) {
  const auto target = load(at::kFloat);
  const GoldenTensors golden = expected();
  const std::vector<int64_t> wanted = ids_of(golden["gen.greedy_ids"]);
  const at::Tensor margins = golden["gen.top2_margin"].flatten();
  const auto cache = target->new_cache();
  std::vector<int64_t> next = ids_of(golden["gen.prompt_ids"]);
  for (size_t step = 0; step < wanted.size(); ++step) {
    const TargetOutput output = target->forward(TokenBatch::single(next, cache->length()), {}, {cache.get()});
    const at::Tensor logits = target->logits(output.last.slice(0, output.last.size(0) - 1));
    const auto [values, ids] = logits[0].topk(2);
    ASSERT_EQ(ids[0].item<int64_t>(), wanted[step]) << "step " << step;
    EXPECT_NEAR((values[0] - values[1]).item<double>(), margins[static_cast<int64_t>(step)].item<double>(), 1e-3);
    next = {wanted[step]};
  }
}

TEST_P(Golden, PaddedBatchesRunAsPackedRows) {
  const auto target = load(at::kFloat);
  const GoldenTensors golden = expected();
  for (const std::string side : {"leftpad", "rightpad"}) {
    if (!golden.has(side + ".input_ids")) {
      ASSERT_TRUE(side == "rightpad" || scaled_rope()) << side;
      continue;
    }
    const at::Tensor mask = golden[side + ".attention_mask"];
    const TokenBatch batch = TokenBatch::packed(unpadded(golden[side + ".input_ids"], mask));
    const at::Tensor logits = target->logits(target->forward(batch, {}).last);
    const at::Tensor wanted = golden[side + ".logits_valid_rows_only"].flatten(0, 1);
    const at::Tensor kept = mask.flatten().to(at::kBool).nonzero().flatten();
    EXPECT_TRUE(test::close(logits, wanted.index_select(0, kept))) << side;
  }
}

// Three sequences of different lengths, prefilled and continued together.
TEST_P(Golden, BatchedGreedyIds) {
  const auto target = load(at::kFloat);
  const GoldenTensors golden = expected();
  if (scaled_rope()) return;
  const at::Tensor wanted = golden["leftpad.greedy_ids"];
  std::vector<std::vector<int64_t>> next = unpadded(golden["leftpad.input_ids"], golden["leftpad.attention_mask"]);
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<KvCache*> pointers;
  for (size_t s = 0; s < next.size(); ++s) {
    caches.push_back(target->new_cache());
    pointers.push_back(caches.back().get());
  }
  for (int64_t step = 0; step < wanted.size(1); ++step) {
    TokenBatch batch = TokenBatch::packed(next);
    for (size_t s = 0; s < next.size(); ++s) {
      batch.positions.slice(0, batch.starts[s], batch.starts[s + 1]).add_(caches[s]->length());
    }
    const TargetOutput output = target->forward(batch, {}, pointers);
    for (size_t s = 0; s < next.size(); ++s) {
      const at::Tensor last = output.last.slice(0, batch.starts[s + 1] - 1, batch.starts[s + 1]);
      const int64_t id = target->logits(last).argmax().item<int64_t>();
      const auto row = static_cast<int64_t>(s);
      ASSERT_EQ(id, wanted[row][step].item<int64_t>()) << "sequence " << s << " step " << step;
      next[s] = {id};
    }
  }
}

TEST_P(Golden, PackedDocumentsDoNotSeeEachOther) {
  const auto target = load(at::kFloat);
  const GoldenTensors golden = expected();
  TokenBatch batch;
  batch.ids = golden["packed.input_ids"].flatten();
  batch.positions = golden["packed.position_ids"].flatten();
  batch.starts = ids_of(golden["packed.cu_seqlens"]);
  EXPECT_TRUE(test::close(target->logits(target->forward(batch, {}).last), golden["packed.logits"][0]));
}

// A prompt in two pieces, the second longer than a decoding call, gives what one piece gives.
TEST_P(Golden, ALongContinuationSeesTheCachedPrefix) {
  const auto target = load(at::kFloat);
  const GoldenTensors golden = expected();
  const std::vector<int64_t> ids = ids_of(golden["input_ids"][0]);
  const auto split = ids.begin() + 5;
  const auto cache = target->new_cache();
  const TargetOutput first = target->forward(TokenBatch::single({ids.begin(), split}), {}, {cache.get()});
  const TargetOutput second = target->forward(TokenBatch::single({split, ids.end()}, 5), {}, {cache.get()});
  const at::Tensor last = at::cat({first.last, second.last});
  EXPECT_TRUE(test::close(target->logits(last), golden["f32.logits"][0]));
}

TEST_P(Golden, BothConfigSpellingsSayTheSame) {
  const auto folder = test::golden(GetParam());
  const Json current = read_json(folder / "config.json"), older = read_json(folder / "config_legacy.json");
  const ModelConfig a = ModelConfig::from_json(current, "config.json");
  const ModelConfig b = ModelConfig::from_json(older, "config_legacy.json");
  EXPECT_EQ(a.to_json(), b.to_json());
  EXPECT_EQ(a.to_json(), ModelConfig::from_json(a.to_json(), "written").to_json());
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::ValuesIn(kModels), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) c = c == '/' ? '_' : c;
  return name;
});

class GoldenGradient : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenGradient, EveryParameter) {
  const ModelConfig config = ModelConfig::from_json(read_json(test::golden(GetParam()) / "config.json"), GetParam());
  const GoldenTensors golden(GetParam() + "/grads.safetensors");
  WeightMap weights = load_weights(config, formats::open_safetensors(test::golden(GetParam())), at::kFloat);
  for (auto& [name, tensor] : weights) tensor = tensor.clone().requires_grad_(true);

  const at::Tensor ids = golden["input_ids"], labels = golden["labels"];
  const at::Tensor logits = differentiable_logits(config, weights, TokenBatch::packed(rows_of(ids)));
  const at::Tensor shifted = logits.view({ids.size(0), ids.size(1), -1}).slice(1, 0, ids.size(1) - 1);
  const at::Tensor loss =
      at::cross_entropy_loss(shifted.reshape({-1, config.vocab_size}), labels.slice(1, 1).reshape({-1}), {},
                             /*reduction=*/1, /*ignore_index=*/-100);
  EXPECT_NEAR(loss.item<double>() / golden["loss"].item<double>(), 1.0, 1e-5);
  loss.backward();
  for (const auto& [name, tensor] : weights) {
    EXPECT_TRUE(test::close_l2(tensor.grad(), golden["grad." + name], 1e-4)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenGradient,
                         ::testing::Values("llama_tiny/default", "qwen2_tiny/untied", "qwen3_tiny/untied"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '/' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace pacer::target
