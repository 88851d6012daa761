// Matrices computed in the form in which a GGUF file holds them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "pacer/base/error.h"
#include "pacer/formats/ggml_types.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/gguf_write.h"
#include "pacer/formats/half.h"
#include "pacer/target/target.h"
#include "tests/support/files.h"
#include "tests/support/kernels.h"
#include "tests/support/tensors.h"

namespace pacer::target {
namespace {

namespace fs = std::filesystem;
using formats::GgmlType;
using test::GoldenTensors;

std::vector<int64_t> ids_of(const at::Tensor& row) {
  const at::Tensor dense = row.contiguous().flatten();
  return {dense.const_data_ptr<int64_t>(), dense.const_data_ptr<int64_t>() + dense.numel()};
}

fs::path tiny(const std::string& type) { return test::golden("checkpoint_layouts/tiny_llama_" + type + ".gguf"); }

// Nearest q4_0 or q4_1 of a block by the plain formulas; good enough a fit for a test.
void fit_four_bits(GgmlType type, const float* x, std::byte* out) {
  const auto put_half = [&](int at, float value) {
    const uint16_t bits = formats::f32_to_f16(value);
    std::memcpy(out + at, &bits, sizeof bits);
    return formats::f16_to_f32(bits);
  };
  float low = x[0], high = x[0];
  for (int i = 1; i < 32; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
  const bool with_minimum = type == GgmlType::Q4_1;
  const float scale = put_half(0, with_minimum ? (high - low) / 15 : std::max(std::abs(low), std::abs(high)) / 7);
  const float offset = with_minimum ? put_half(2, low) : -8 * scale;
  for (int i = 0; i < 16; ++i) {
    const auto code = [&](float value) {
      return static_cast<uint32_t>(std::clamp(std::lround((value - offset) / scale), 0L, 15L));
    };
    out[(with_minimum ? 4 : 2) + i] = static_cast<std::byte>(code(x[i]) | code(x[i + 16]) << 4);
  }
}

// The tiny model again, each tensor in the type that `type_of` names.
fs::path rewritten(const fs::path& folder, const std::function<GgmlType(const std::string&)>& type_of) {
  const auto file = formats::GgufFile::open(tiny("f32"));
  formats::GgufMetadata metadata;
  for (const std::string& key : file->keys()) metadata.copy(key, file->value(key));
  std::vector<formats::GgufTensorSpec> specs;
  for (const formats::GgufTensor& tensor : file->tensors()) {
    // Rows of 48, those of the tiny model's ffn_down, are no whole blocks.
    const bool blocks = tensor.shape.size() == 2 && tensor.width() % 32 == 0;
    const GgmlType type = type_of(tensor.name);
    const bool fits = blocks || (tensor.shape.size() == 2 && formats::ggml_layout(type).block_values == 1);
    specs.push_back({tensor.name, fits ? type : GgmlType::F32, tensor.shape});
  }
  const fs::path path = folder / "mixed.gguf";
  formats::write_gguf(path, metadata, specs, [&](const formats::GgufTensorSpec& tensor, std::span<std::byte> bytes) {
    const std::vector<float> values = file->dequantize(tensor.name);
    if (formats::can_quantize(tensor.type)) return formats::quantize_blocks(tensor.type, values, bytes, tensor.name);
    const size_t block_bytes = formats::ggml_layout(tensor.type).block_bytes;
    for (size_t b = 0; b < values.size() / 32; ++b) {
      fit_four_bits(tensor.type, values.data() + 32 * b, bytes.data() + b * block_bytes);
    }
  });
  return path;
}

class StoredWeights : public ::testing::Test {
 protected:
  at::Tensor logits(const Target& target) const {
    return target.logits(target.forward(TokenBatch::packed({ids_of(ids_[0]), ids_of(ids_[1])}), {}).last);
  }
  test::OwnKernels own_kernels_;
  GoldenTensors golden_{"checkpoint_layouts/tiny_llama_gguf_expected.safetensors"};
  at::Tensor ids_ = golden_["input_ids"];
  test::TemporaryFolder folder_;
  device::Runtime runtime_ = device::Runtime::open("cpu");
};

TEST_F(StoredWeights, BlocksAreWithinTwoHundredthsOfTheGoldenLogits) {
  const auto target = Target::load(tiny("q8_0"), Precision::stored, runtime_);
  EXPECT_TRUE(target->has_stored_weights());
  EXPECT_EQ(target->dtype(), at::kFloat);
  EXPECT_TRUE(test::close_l2(logits(*target), golden_["q8_0.logits"].flatten(0, 1), 2e-2));
  // Rows of 8 bits are coarser; bf16's own logits are one to two per cent away from f32's.
  const auto coarse = Target::load(tiny("q8_0"), Precision::stored_int8, runtime_);
  EXPECT_TRUE(test::close_l2(logits(*coarse), golden_["q8_0.logits"].flatten(0, 1), 4e-2));
  EXPECT_FALSE(test::close_l2(logits(*coarse), logits(*target), 1e-3)) << "they are two ways of computing";
}

// Where the file holds f32, only keys and values are rounded, to bf16.
TEST_F(StoredWeights, F32MatricesStayF32) {
  const auto target = Target::load(tiny("f32"), Precision::stored, runtime_);
  EXPECT_TRUE(test::close_l2(logits(*target), golden_["f32.logits"].flatten(0, 1), 1e-2));
}

// The form is chosen for each matrix: neighbours in one layer, embedding and head may all differ.
TEST_F(StoredWeights, EveryMixOfTypesIsTheDequantisedModel) {
  const std::map<std::string, std::function<GgmlType(const std::string&)>> mixes = {
      {"q4_0", [](const auto&) { return GgmlType::Q4_0; }},
      {"q4_1", [](const auto&) { return GgmlType::Q4_1; }},
      {"bf16", [](const auto&) { return GgmlType::BF16; }},
      {"f16", [](const auto&) { return GgmlType::F16; }},
      {"mixed", [](const std::string& name) {
         if (name.find("attn_q") != std::string::npos) return GgmlType::Q4_1;
         if (name.find("attn_k") != std::string::npos) return GgmlType::Q8_0;
         if (name.find("attn_v") != std::string::npos) return GgmlType::F32;
         if (name.find("ffn_up") != std::string::npos) return GgmlType::BF16;
         if (name.find("token_embd") != std::string::npos) return GgmlType::F16;
         return GgmlType::Q4_0;
       }}};
  for (const auto& [what, type_of] : mixes) {
    const fs::path path = rewritten(folder_.path(), type_of);
    const at::Tensor wanted = logits(*Target::load(path, Precision::f32, runtime_));
    const auto target = Target::load(path, Precision::stored, runtime_);
    EXPECT_TRUE(test::close_l2(logits(*target), wanted, 2e-2)) << what;
  }
}

TEST_F(StoredWeights, TensorsByNameAreDequantisedCopies) {
  const auto stored = Target::load(tiny("q8_0"), Precision::stored, runtime_);
  const auto dense = Target::load(tiny("q8_0"), Precision::f32, runtime_);
  EXPECT_TRUE(test::same_bits(stored->embedding_weight(), dense->embedding_weight()));
  EXPECT_TRUE(test::same_bits(stored->head_weight(), dense->head_weight()));
  for (const char* name : {"model.norm.weight", "model.layers.1.self_attn.q_proj.weight"}) {
    EXPECT_TRUE(test::same_bits(stored->weight(name), dense->weight(name))) << name;
  }
  EXPECT_THROW(stored->weight("model.layers.9.mlp.up_proj.weight"), Error);
  const at::Tensor ids = at::arange(5, at::kLong) * 7;
  EXPECT_TRUE(test::same_bits(stored->embed(ids), dense->embed(ids)));
}

// The file's bytes serve as they are: the packed copy is what the blocks take, an eighth of f32 and the scales.
TEST_F(StoredWeights, MemoryIsThatOfTheBlocks) {
  const auto stored = Target::load(tiny("q8_0"), Precision::stored, runtime_);
  const auto dense = Target::load(tiny("q8_0"), Precision::f32, runtime_);
  const uint64_t before = stored->weight_bytes();
  EXPECT_LT(before, dense->weight_bytes() / 10) << "norms only";
  logits(*stored);
  const uint64_t packed = stored->weight_bytes() - before;
  EXPECT_LT(packed, dense->weight_bytes() * 2 / 3);  // rows of one block are padded to two in this tiny model
  EXPECT_GT(packed, dense->weight_bytes() / 8);
}

TEST_F(StoredWeights, AFolderHasNoStoredForm) {
  try {
    Target::load(test::golden("llama_tiny/default"), Precision::stored, runtime_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.hint()).find("--to gguf"), std::string::npos) << error.hint();
  }
  EXPECT_THROW(parse_precision("q5_k"), Error);
}

// A real model of mixed types: matrices of layers in Q4_1, embedding and head in Q8_0.
TEST_F(StoredWeights, SmolLm2IsWithinTwoHundredthsOfF32) {
  PACER_PACKAGE_OR_SKIP(folder, "smollm2");
  const Json expected = test::golden_json("checkpoint_layouts/smollm2_expected.json");
  const fs::path file = folder / expected.at("file").get<std::string>();
  const GoldenTensors golden("checkpoint_layouts/smollm2_expected.safetensors");
  const auto exact = Target::load(file, Precision::f32, runtime_),
             stored = Target::load(file, Precision::stored, runtime_);
  for (const std::string name : {"case0", "case1"}) {
    const std::vector<int64_t> ids = ids_of(at::cat({golden[name + ".prompt_ids"], golden[name + ".greedy_ids"]}));
    const auto of = [&](const Target& target) {
      return target.logits(target.forward(TokenBatch::single(ids), {}).last);
    };
    EXPECT_TRUE(test::close_l2(of(*stored), of(*exact), 2e-2)) << name;
  }
}

}  // namespace
}  // namespace pacer::target
