#include "pacer/formats/gguf_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/random.h"
#include "pacer/formats/gguf_names.h"
#include "pacer/formats/half.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

namespace fs = std::filesystem;

void fill_nothing(const GgufTensorSpec&, std::span<std::byte>) {}

// Every kind of value, nested arrays too: a file copied key by key and tensor by tensor says the same.
TEST(GgufWrite, ACopyOfAFileWithEveryKindOfValue) {
  const test::TemporaryFolder folder;
  const auto source = GgufFile::open(test::golden("checkpoint_layouts/quant_types.gguf"));
  GgufMetadata metadata;
  for (const std::string& key : source->keys()) {
    if (key != "general.alignment") metadata.copy(key, source->value(key));
  }
  std::vector<GgufTensorSpec> specs;
  for (const GgufTensor& tensor : source->tensors()) specs.push_back({tensor.name, tensor.type, tensor.shape});
  write_gguf(folder.path() / "copy.gguf", metadata, specs, [&](const GgufTensorSpec& spec, std::span<std::byte> to) {
    const GgufTensor& tensor = source->tensor(spec.name);
    ASSERT_EQ(to.size(), tensor.bytes.size()) << spec.name;
    std::copy(tensor.bytes.begin(), tensor.bytes.end(), to.begin());
  });
  const auto copy = GgufFile::open(folder.path() / "copy.gguf");
  EXPECT_EQ(copy->version(), 3u);
  EXPECT_EQ(copy->alignment(), 32u);
  EXPECT_EQ(copy->keys().size() + (source->has("general.alignment") ? 1 : 0), source->keys().size());
  for (const std::string& key : copy->keys()) {
    EXPECT_EQ(copy->value(key).type, source->value(key).type) << key;
    EXPECT_EQ(to_json(copy->value(key)), to_json(source->value(key))) << key;
  }
  ASSERT_EQ(copy->tensors().size(), source->tensors().size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const GgufTensor &a = copy->tensors()[i], &b = source->tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.type, b.type) << a.name;
    EXPECT_EQ(a.shape, b.shape) << a.name;
    EXPECT_EQ(a.offset % 32, 0u) << a.name;
    EXPECT_TRUE(std::ranges::equal(a.bytes, b.bytes)) << a.name;
  }
}

TEST(GgufWrite, ValuesBySetters) {
  const test::TemporaryFolder folder;
  GgufMetadata metadata;
  metadata.text("a", "old");
  metadata.u32("b", 4294967295);
  metadata.f32("c", 0.1);
  metadata.flag("d", true);
  metadata.texts("e", std::vector<std::string>{"x", "", "y z"});
  metadata.i32s("f", std::vector<int32_t>{-1, 7});
  metadata.text("a", "new");
  EXPECT_TRUE(metadata.has("a"));
  EXPECT_FALSE(metadata.has("g"));
  EXPECT_THROW(metadata.u32("b", -1), Error);
  EXPECT_THROW(metadata.u32("b", 4294967296), Error);
  write_gguf(folder.path() / "m.gguf", metadata, {}, fill_nothing);
  const auto file = GgufFile::open(folder.path() / "m.gguf");
  EXPECT_EQ(file->keys(), (std::vector<std::string>{"a", "b", "c", "d", "e", "f"}));
  EXPECT_EQ(file->text("a"), "new");
  EXPECT_EQ(file->integer("b"), 4294967295);
  EXPECT_EQ(file->number("c"), static_cast<double>(0.1f));
  EXPECT_TRUE(file->boolean("d"));
  EXPECT_EQ(file->texts("e"), (std::vector<std::string_view>{"x", "", "y z"}));
  EXPECT_EQ(file->integers("f"), (std::vector<int64_t>{-1, 7}));
}

TEST(GgufWrite, RefusesHalfABlockAndLeavesNothing) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(write_gguf(folder.path() / "m.gguf", {}, {{"t", GgmlType::Q8_0, {2, 48}}}, fill_nothing), Error);
  const auto fails = [](const GgufTensorSpec&, std::span<std::byte>) { throw Error(ErrorKind::data, "no values"); };
  EXPECT_THROW(write_gguf(folder.path() / "m.gguf", {}, {{"t", GgmlType::F32, {2, 48}}}, fails), Error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// By the definition: scale max|x| / 127, each value the nearest whole number of them, halves away from zero.
TEST(QuantizeBlocks, Q8_0IsTheNearestWholeNumberOfTheScale) {
  const RandomStream stream(1, Purpose::test);
  std::vector<float> values(32 * 40);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t block = i / 32;
    values[i] = static_cast<float>(stream.uniform(i) - 0.5) * std::exp2(static_cast<float>(block) - 20.0f);
  }
  std::fill_n(values.begin(), 32, 0.0f);
  values[32] = 127.0f, values[33] = 2.5f, values[34] = -2.5f, values[35] = 0.49999997f;
  std::vector<std::byte> blocks(34 * 40);
  quantize_blocks(GgmlType::Q8_0, values, blocks, "test");
  std::vector<float> back(values.size());
  dequantize_blocks(GgmlType::Q8_0, blocks, back);
  EXPECT_EQ(back[0], 0.0f);
  EXPECT_EQ(back[32], 127.0f);
  EXPECT_EQ(back[33], 3.0f);
  EXPECT_EQ(back[34], -3.0f);
  EXPECT_EQ(back[35], 0.0f);
  for (size_t block = 0; block < 40; ++block) {
    float largest = 0.0f;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[32 * block + i]));
    for (size_t i = 32 * block; i < 32 * block + 32; ++i) {
      // Half a step, and what the f16 of the scale adds: 2^-11 of it, or 2^-25 where f16 is subnormal.
      const float bound = largest / 127 * 0.5f + largest * std::exp2(-11.0f) + 127 * std::exp2(-25.0f);
      EXPECT_NEAR(back[i], values[i], bound) << i;
    }
  }
}

TEST(QuantizeBlocks, RefusesWhatHasNoPlaceInABlock) {
  std::vector<std::byte> block(34);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values(32, 1.0f);
    values[5] = bad;
    EXPECT_THROW(quantize_blocks(GgmlType::Q8_0, values, block, "test"), Error);
  }
  EXPECT_FALSE(can_quantize(GgmlType::Q4_K));
  EXPECT_THROW(quantize_blocks(GgmlType::Q4_0, std::vector<float>(32), block, "test"), Error);
}

TEST(GgufNames, BothWaysAreInverse) {
  for (const char* name :
       {"token_embd.weight", "output.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.12.attn_q.weight",
        "blk.12.attn_q.bias", "blk.3.ffn_down.weight", "blk.3.attn_k_norm.weight", "blk.3.ffn_norm.weight"}) {
    const auto there = hugging_face_name(name, 13);
    ASSERT_TRUE(there) << name;
    EXPECT_EQ(gguf_name(*there), name);
  }
  EXPECT_FALSE(gguf_name("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(gguf_name("model.layers.0"));
  for (int64_t row = 0; row < 24; ++row) {
    EXPECT_EQ(hugging_face_row(interleaved_row(row, 8), 8), row);
    EXPECT_EQ(interleaved_row(hugging_face_row(row, 8), 8), row);
  }
}

}  // namespace
}  // namespace pacer::formats
