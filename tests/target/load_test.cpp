// What loading and calling refuse, and what the accounting says.
#include <filesystem>
#include <fstream>

#include <ATen/ops/ones.h>

#include "pacer/base/error.h"
#include "pacer/nn/tensor_io.h"
#include "pacer/target/target.h"
#include "tests/support/files.h"
#include "tests/support/kernels.h"
#include "tests/support/tensors.h"

namespace pacer::target {
namespace {

namespace fs = std::filesystem;

struct Refusal {
  ErrorKind kind = ErrorKind::bug;
  std::string what = "no error";
};

template <typename Call>
Refusal refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {};
}

void expect(const Refusal& refusal, ErrorKind kind, const std::string& named) {
  EXPECT_EQ(refusal.kind, kind) << refusal.what;
  EXPECT_NE(refusal.what.find(named), std::string::npos) << refusal.what << "\nshould name " << named;
}

// A copy of llama_tiny/default whose files can be spoilt.
class Loading : public ::testing::Test {
 protected:
  Loading() : runtime_(device::Runtime::open("cpu")) {
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(test::golden("llama_tiny/default") / name, folder_.path() / name);
    }
  }

  Refusal load_refusal(at::ScalarType dtype = at::kFloat) {
    return refusal([&] { Target::load(folder_.path(), dtype, runtime_); });
  }

  void set_config(const char* field, const Json& value) {
    Json config = read_json(folder_.path() / "config.json");
    config[field] = value;
    std::ofstream(folder_.path() / "config.json") << config;
  }

  // Rewrites the weights after `change` had its way with the list.
  template <typename Change>
  void change_weights(const Change& change) {
    const test::GoldenTensors stored("llama_tiny/default/model.safetensors");
    std::map<std::string, at::Tensor> tensors;
    for (const std::string& name : stored.names()) tensors[name] = stored[name];
    change(tensors);
    std::vector<formats::NamedTensor> list;
    for (const auto& [name, tensor] : tensors) list.push_back({name, nn::view_of(tensor)});
    formats::write_safetensors(folder_.path() / "model.safetensors", list);
  }

  test::TemporaryFolder folder_;
  device::Runtime runtime_;
};

TEST_F(Loading, RefusesAnUnsupportedArchitecture) {
  set_config("model_type", "gpt2");
  expect(load_refusal(), ErrorKind::format, "gpt2");
}

TEST_F(Loading, RefusesAMissingTensor) {
  change_weights([](auto& tensors) { tensors.erase("model.layers.1.mlp.up_proj.weight"); });
  expect(load_refusal(), ErrorKind::format, "model.layers.1.mlp.up_proj.weight");
}

TEST_F(Loading, RefusesATensorOfAnotherShape) {
  change_weights([](auto& tensors) { tensors["model.norm.weight"] = at::ones({31}); });
  expect(load_refusal(), ErrorKind::format, "model.norm.weight");
}

TEST_F(Loading, RefusesATensorThatTheModelDoesNotHave) {
  change_weights([](auto& tensors) { tensors["model.layers.0.self_attn.q_proj.bias"] = at::ones({32}); });
  expect(load_refusal(), ErrorKind::format, "model.layers.0.self_attn.q_proj.bias");
}

TEST_F(Loading, RefusesOtherTypesAndPlaces) {
  expect(load_refusal(at::kHalf), ErrorKind::usage, "Half");
  expect(refusal([&] { Target::load(folder_.path() / "model.safetensors", at::kFloat, runtime_); }), ErrorKind::format,
         "model.safetensors");
  EXPECT_THROW(Target::load(folder_.path() / "nowhere", at::kFloat, runtime_), Error);
}

TEST_F(Loading, StopTokensOfTheGenerationConfigComeFirst) {
  std::ofstream(folder_.path() / "generation_config.json") << R"({"eos_token_id": [7, 8]})";
  const auto target = Target::load(folder_.path(), at::kFloat, runtime_);
  EXPECT_EQ(target->config().eos_ids, (std::vector<int64_t>{7, 8}));
  std::ofstream(folder_.path() / "generation_config.json") << R"({"eos_token_id": "seven"})";
  expect(load_refusal(), ErrorKind::format, "eos_token_id");
}

TEST_F(Loading, WeightsByName) {
  const auto target = Target::load(folder_.path(), at::kFloat, runtime_);
  const test::GoldenTensors stored("llama_tiny/default/model.safetensors");
  for (const std::string& name : stored.names())
    EXPECT_TRUE(test::same_bits(target->weight(name), stored[name])) << name;
  expect(refusal([&] { target->weight("model.layers.9.mlp.up_proj.weight"); }), ErrorKind::format, "layers.9");
  const auto tied = Target::load(test::golden("llama_tiny/tied_sharded"), at::kFloat, runtime_);
  EXPECT_TRUE(test::same_bits(tied->head_weight(), tied->embedding_weight()));
  EXPECT_TRUE(test::same_bits(tied->weight("lm_head.weight"), tied->embedding_weight()));
}

// Packed copies are made by the first decoding call, not before, and are counted.
TEST_F(Loading, PackingIsLazyAndCounted) {
  const test::OwnKernels own_kernels;
  const auto target = Target::load(folder_.path(), at::kFloat, runtime_);
  const uint64_t plain = target->weight_bytes();
  target->forward(TokenBatch::single({1, 2, 3}), {});
  EXPECT_EQ(target->weight_bytes(), plain);
  const auto cache = target->new_cache();
  target->forward(TokenBatch::single({1, 2, 3}), {}, {cache.get()});
  const uint64_t packed = target->weight_bytes();
  EXPECT_GT(packed, plain);
  target->logits(target->forward(TokenBatch::single({1}), {}).last);
  EXPECT_GT(target->weight_bytes(), packed);
  EXPECT_GT(cache->bytes(), 0u);
}

TEST_F(Loading, CallsThatCannotBeMeant) {
  const auto target = Target::load(folder_.path(), at::kFloat, runtime_);
  const TokenBatch batch = TokenBatch::single({1, 2});
  const int64_t last = target->config().layers - 1;
  expect(refusal([&] { target->forward(batch, {last}); }), ErrorKind::usage, std::to_string(last));
  expect(refusal([&] { target->forward(batch, {-2}); }), ErrorKind::usage, "-2");
  const int64_t vocabulary = target->config().vocab_size;
  expect(refusal([&] { target->forward(TokenBatch::single({vocabulary}), {}); }), ErrorKind::data,
         std::to_string(vocabulary));
  expect(refusal([&] { target->forward(TokenBatch::single({-1}), {}); }), ErrorKind::data, "-1");

  const auto cache = target->new_cache();
  expect(refusal([&] { target->forward(batch, {}, {cache.get(), cache.get()}); }), ErrorKind::bug, "2 caches");
  const TokenBatch two = TokenBatch::packed({{1}, {2}});
  expect(refusal([&] { target->forward(two, {}, {cache.get(), cache.get()}); }), ErrorKind::bug, "same cache");
  const auto other = Target::load(test::golden("qwen3_tiny/untied"), at::kFloat, runtime_)->new_cache();
  expect(refusal([&] { target->forward(batch, {}, {other.get()}); }), ErrorKind::bug, "another model");
  TokenBatch torn = batch;
  torn.starts = {0, 1};
  expect(refusal([&] { target->forward(torn, {}); }), ErrorKind::bug, "starts");
  EXPECT_EQ(cache->length(), 0) << "a refused call must not write";
  expect(refusal([&] { cache->crop(1); }), ErrorKind::bug, "crop");
}

}  // namespace
}  // namespace pacer::target
