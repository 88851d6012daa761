// Targets out of GGUF files: tiny ones in the tree, SmolLM2-135M-Instruct from its package.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>

#include "pacer/target/target.h"
#include "tests/support/files.h"
#include "tests/support/kernels.h"
#include "tests/support/tensors.h"

namespace pacer::target {
namespace {

using test::GoldenTensors;

std::vector<int64_t> ids_of(const at::Tensor& row) {
  const at::Tensor dense = row.contiguous().flatten();
  return {dense.const_data_ptr<int64_t>(), dense.const_data_ptr<int64_t>() + dense.numel()};
}

TEST(TinyGguf, LogitsOfTheStoredWeights) {
  auto runtime = device::Runtime::open("cpu");
  const GoldenTensors golden("checkpoint_layouts/tiny_llama_gguf_expected.safetensors");
  const at::Tensor ids = golden["input_ids"];
  const TokenBatch batch = TokenBatch::packed({ids_of(ids[0]), ids_of(ids[1])});
  for (const std::string type : {"f32", "q8_0"}) {
    const auto path = test::golden("checkpoint_layouts/tiny_llama_" + type + ".gguf");
    const auto target = Target::load(path, at::kFloat, runtime);
    const at::Tensor logits = target->logits(target->forward(batch, {}).last);
    EXPECT_TRUE(test::close(logits, golden[type + ".logits"].flatten(0, 1))) << type;
  }
}

class SmolLm2 : public ::testing::TestWithParam<int> {
 protected:
  static std::shared_ptr<Target> target(const std::filesystem::path& folder) {
    static const std::shared_ptr<Target> loaded = [&] {
      auto runtime = device::Runtime::open("cpu");
      const Json expected = test::golden_json("checkpoint_layouts/smollm2_expected.json");
      return Target::load(folder / expected.at("file").get<std::string>(), at::kFloat, runtime);
    }();
    return loaded;
  }
  at::Tensor golden(const std::string& name) const {
    static const GoldenTensors tensors("checkpoint_layouts/smollm2_expected.safetensors");
    return tensors["case" + std::to_string(GetParam()) + "." + name];
  }
};

TEST_P(SmolLm2, HiddenStatesAndLogitsOfAPrompt) {
  PACER_PACKAGE_OR_SKIP(folder, "smollm2");
  const auto model = target(folder);
  Taps taps;
  for (int64_t i = -1; i <= model->config().layers - 2; ++i) taps.push_back(i);
  const TargetOutput output = model->forward(TokenBatch::single(ids_of(golden("prompt_ids"))), taps);
  const at::Tensor logits = model->logits(output.last);

  const auto [top, top_ids] = logits[-1].topk(20);
  EXPECT_TRUE(test::close(top, golden("last_position_top20_logits"), 1e-3, 0));
  EXPECT_EQ(ids_of(top_ids), ids_of(golden("last_position_top20_ids")));
  EXPECT_EQ(ids_of(logits.argmax(-1)), ids_of(golden("argmax_every_position")));
  EXPECT_TRUE(test::close(std::get<0>(logits.max(-1)), golden("max_logit_every_position"), 1e-3, 0));
  EXPECT_TRUE(test::close(at::logsumexp(logits, {-1}), golden("logsumexp_every_position"), 1e-3, 0));

  // Embedding and layers 0 .. 28, which can be tapped, and the state after the final norm; the raw last layer has no
  // tap.
  const at::Tensor last = at::cat({output.tapped[-1], output.last[-1].unsqueeze(0)});
  const at::Tensor first8 = golden("hidden_first8_per_layer_last_position");
  const at::Tensor norms = golden("hidden_norm_per_layer_last_position");
  ASSERT_EQ(last.size(0), norms.size(0));
  EXPECT_TRUE(test::close(last.slice(1, 0, 8), first8, 1e-3, 1e-4));
  EXPECT_TRUE(test::close(at::norm(last, 2, at::IntArrayRef{1}), norms, 1e-3, 1e-4));
}

TEST_P(SmolLm2, GreedyIdsAndMargins) {
  PACER_PACKAGE_OR_SKIP(folder, "smollm2");
  const auto model = target(folder);
  const std::vector<int64_t> wanted = ids_of(golden("greedy_ids"));
  const at::Tensor margins = golden("greedy_top2_margin");
  const auto cache = model->new_cache(128);
  std::vector<int64_t> next = ids_of(golden("prompt_ids"));
  for (size_t step = 0; step < wanted.size(); ++step) {
    const TargetOutput output = model->forward(TokenBatch::single(next, cache->length()), {}, {cache.get()});
    const auto [values, ids] = model->logits(output.last.slice(0, -1))[0].topk(2);
    ASSERT_EQ(ids[0].item<int64_t>(), wanted[step]) << "step " << step;
    EXPECT_NEAR((values[0] - values[1]).item<double>(), margins[static_cast<int64_t>(step)].item<double>(), 1e-3);
    next = {wanted[step]};
  }
}

// The widths of a real model in both types: a draft of any length verified in one call, every row as if it came alone.
TEST(SmolLm2Rows, HaveTheSameBitsAloneAndTogether) {
  PACER_PACKAGE_OR_SKIP(folder, "smollm2");
  const test::OwnKernels own_kernels;
  auto runtime = device::Runtime::open("cpu");
  const Json expected = test::golden_json("checkpoint_layouts/smollm2_expected.json");
  const GoldenTensors golden("checkpoint_layouts/smollm2_expected.safetensors");
  const std::vector<int64_t> prompt = ids_of(golden["case1.prompt_ids"]);
  const std::vector<int64_t> answer = ids_of(golden["case1.greedy_ids"].slice(0, 0, 16));
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::stored, Precision::stored_int8}) {
    const auto model = Target::load(folder / expected.at("file").get<std::string>(), precision, runtime);
    const auto start = model->new_cache(128);
    model->forward(TokenBatch::single(prompt), {}, {start.get()});
    const auto logits = [&](KvCache& cache, const std::vector<int64_t>& ids) {
      return model->logits(model->forward(TokenBatch::single(ids, cache.length()), {}, {&cache}).last);
    };
    std::vector<at::Tensor> alone;
    const auto single = start->clone();
    for (const int64_t id : answer) alone.push_back(logits(*single, {id}));
    for (const int64_t count : {2, 6, 8, 9, 16}) {
      start->crop(static_cast<int64_t>(prompt.size()));
      const at::Tensor together = logits(*start, {answer.begin(), answer.begin() + count});
      EXPECT_TRUE(test::same_bits(together, at::cat(at::TensorList(alone).slice(0, static_cast<size_t>(count)))))
          << static_cast<int>(precision) << ", " << count << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SmolLm2, ::testing::Values(0, 1));

}  // namespace
}  // namespace pacer::target
