// Models written as GGUF files and read back.
#include "pacer/workflow/convert_to_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/half.h"
#include "pacer/formats/model_folder.h"
#include "pacer/target/target.h"
#include "pacer/text/model_text.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;
using formats::GgmlType;

fs::path tiny(const std::string& type) { return test::golden("checkpoint_layouts/tiny_llama_" + type + ".gguf"); }

void expect_equal_tensors(const formats::GgufFile& a, const formats::GgufFile& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const formats::GgufTensor& tensor : a.tensors()) {
    const formats::GgufTensor& other = b.tensor(tensor.name);
    EXPECT_EQ(tensor.type, other.type) << tensor.name;
    EXPECT_EQ(tensor.shape, other.shape) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, other.bytes)) << tensor.name;
  }
}

// The tiny model with as many rows of embedding and head as asked for: its own ones again and again.
void resize_vocabulary(const fs::path& folder, Json config, int64_t rows) {
  config["vocab_size"] = rows;
  write_file(folder / "config.json", config.dump());
  const auto source = formats::open_safetensors(test::golden("llama_tiny/default"));
  std::vector<formats::TensorSpec> specs;
  for (const std::string& name : source->names()) {
    const formats::TensorView view = source->tensor(name);
    specs.push_back({name, view.dtype, view.shape});
    if (name == "model.embed_tokens.weight" || name == "lm_head.weight") specs.back().shape[0] = rows;
  }
  fs::remove(folder / "model.safetensors");
  formats::write_safetensors(folder / "model.safetensors", specs,
                             [&](const formats::TensorSpec& spec, std::span<std::byte> to) {
                               const std::span<const std::byte> from = source->tensor(spec.name).bytes;
                               for (size_t i = 0; i < to.size(); ++i) to[i] = from[i % from.size()];
                             });
}

class ConvertToGguf : public ::testing::Test {
 protected:
  fs::path out(const std::string& name = "out.gguf") const { return folder_.path() / name; }
  test::TemporaryFolder folder_;
};

// The golden files were made by llama.cpp's own tools from the same checkpoint.
TEST_F(ConvertToGguf, AFolderBecomesTheFileThatItsMakersMadeOfIt) {
  const ConvertedModel made = convert_to_gguf(test::golden("llama_tiny/default"), out(), GgmlType::F32, false);
  const auto written = formats::GgufFile::open(out()), golden = formats::GgufFile::open(tiny("f32"));
  EXPECT_EQ(made.tensors, golden->tensors().size());
  expect_equal_tensors(*written, *golden);
  const auto model = formats::GgufModel::open(out()), reference = formats::GgufModel::open(tiny("f32"));
  for (const char* key : {"architectures", "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size",
                          "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_parameters",
                          "max_position_embeddings", "tie_word_embeddings", "attention_bias", "mlp_bias"}) {
    EXPECT_EQ(model->config()[key], reference->config()[key]) << key;
  }
}

TEST_F(ConvertToGguf, Q8_0IsRoundedAsTheFormatDefines) {
  convert_to_gguf(test::golden("llama_tiny/default"), out(), GgmlType::Q8_0, false);
  expect_equal_tensors(*formats::GgufFile::open(out()), *formats::GgufFile::open(tiny("q8_0")));
  convert_to_gguf(tiny("f32"), out("again.gguf"), GgmlType::Q8_0, false);
  expect_equal_tensors(*formats::GgufFile::open(out("again.gguf")), *formats::GgufFile::open(tiny("q8_0")));
}

// All settings of all families: the folder and the file are the same model, to the bit.
TEST_F(ConvertToGguf, EveryFamilyComputesTheSame) {
  auto runtime = device::Runtime::open("cpu");
  for (const std::string name :
       {"llama_tiny/mha_bias", "llama_tiny/mqa_headdim", "llama_tiny/tied_sharded", "llama_tiny/rope_llama3",
        "llama_tiny/rope_linear", "llama_tiny/rope_yarn", "qwen2_tiny/untied", "qwen2_tiny/tied", "qwen3_tiny/untied",
        "qwen3_tiny/tied", "qwen3_tiny/yarn_sharded"}) {
    const fs::path file = out("model.gguf"), folder = test::golden(name);
    convert_to_gguf(folder, file, GgmlType::F32, /*replace=*/true);
    const auto a = target::Target::load(folder, at::kFloat, runtime),
               b = target::Target::load(file, at::kFloat, runtime);
    const auto batch = target::TokenBatch::single({1, 5, 9, 30, 2, 77, 41});
    EXPECT_TRUE(test::close(b->logits(b->forward(batch, {}).last), a->logits(a->forward(batch, {}).last), 2e-5, 2e-5))
        << name;
  }
}

TEST_F(ConvertToGguf, Bf16IsExactWhereTheWeightsAreBf16) {
  convert_to_gguf(tiny("f32"), out("a.gguf"), GgmlType::BF16, false);
  convert_to_gguf(out("a.gguf"), out("b.gguf"), GgmlType::F32, false);
  convert_to_gguf(out("b.gguf"), out("c.gguf"), GgmlType::BF16, false);
  expect_equal_tensors(*formats::GgufFile::open(out("a.gguf")), *formats::GgufFile::open(out("c.gguf")));
  const auto exact = formats::GgufFile::open(tiny("f32")), rounded = formats::GgufFile::open(out("b.gguf"));
  for (const formats::GgufTensor& tensor : exact->tensors()) {
    const std::vector<float> a = exact->dequantize(tensor.name), b = rounded->dequantize(tensor.name);
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(b[i], tensor.shape.size() < 2 ? a[i] : formats::bf16_to_f32(formats::f32_to_bf16(a[i])));
    }
  }
}

// A folder with a tokenizer and a template.
TEST_F(ConvertToGguf, TokenizerAndTemplateAreCarriedOver) {
  for (const auto& [style, template_text] :
       {std::pair{"tiny_llama3_style", "{{ bos_token }}{{ messages }}"}, {"tiny_qwen_style", "{{ messages }}!"}}) {
    const fs::path model = folder_.path() / style;
    fs::copy(test::golden("llama_tiny/default"), model);
    fs::copy_file(test::golden("tokenizers") / style / "tokenizer.json", model / "tokenizer.json");
    std::ofstream(model / "tokenizer_config.json") << Json{{"chat_template", template_text}};
    Json config = read_json(model / "config.json");
    const auto tokenizer = text::Tokenizer::load(model);
    // The embedding gets as many rows as the tokenizer has tokens, and some without one.
    resize_vocabulary(model, config, tokenizer->vocab_size() + 5);
    const fs::path file = out(std::string(style) + ".gguf");
    convert_to_gguf(model, file, GgmlType::F32, false);
    const auto text = text::ModelText::load(file);
    EXPECT_EQ(text->chat_template().source(), template_text);
    EXPECT_EQ(text->tokenizer()->vocab_size(), tokenizer->vocab_size() + 5);
    for (const char* words : {"Hello, world!", " 12345 tabs\tand\n\nlines", "naïve café — Ünïcode 漢字", "don't"}) {
      for (const bool special : {false, true}) {
        EXPECT_EQ(text->tokenizer()->encode(words, {.add_special_tokens = special}).ids,
                  tokenizer->encode(words, {.add_special_tokens = special}).ids)
            << style << ": " << words;
      }
    }
  }
}

TEST_F(ConvertToGguf, WhatIsNullInATokenizerIsAsIfItWereNotThere) {
  const fs::path model = folder_.path() / "model";
  fs::copy(test::golden("llama_tiny/default"), model);
  OrderedJson tokenizer = OrderedJson::parse(read_file(test::golden("tokenizers/tiny_qwen_style/tokenizer.json")));
  for (const char* name : {"type", "byte_fallback", "ignore_merges"}) tokenizer["model"][name] = nullptr;
  for (OrderedJson& added : tokenizer["added_tokens"]) {
    if (added["special"] == false) added["special"] = nullptr;
  }
  write_file(model / "tokenizer.json", tokenizer.dump());
  const auto read = text::Tokenizer::load(model);
  resize_vocabulary(model, read_json(model / "config.json"), read->vocab_size());
  convert_to_gguf(model, out(), GgmlType::F32, false);
  const auto written = text::Tokenizer::load(out());
  EXPECT_EQ(written->encode("<|im_start|>Hello, <think>world").ids,
            read->encode("<|im_start|>Hello, <think>world").ids);
}

TEST_F(ConvertToGguf, AFileKeepsItsMetadata) {
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  const fs::path source = package / test::golden_json("checkpoint_layouts/smollm2_expected.json").at("file");
  convert_to_gguf(source, out(), GgmlType::Q8_0, false);
  const auto a = formats::GgufFile::open(source), b = formats::GgufFile::open(out());
  for (const std::string& key : a->keys()) {
    if (key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment") continue;
    EXPECT_EQ(to_json(b->value(key)), to_json(a->value(key))) << key;
  }
  EXPECT_EQ(b->integer("general.file_type"), 7);
  for (const formats::GgufTensor& tensor : b->tensors()) {
    EXPECT_EQ(tensor.type, tensor.shape.size() < 2 ? GgmlType::F32 : GgmlType::Q8_0) << tensor.name;
  }
}

TEST_F(ConvertToGguf, RefusesWhatAFileCannotSay) {
  EXPECT_THROW(convert_to_gguf(test::golden("qwen2_tiny/sliding_window"), out(), GgmlType::F32, false), Error);
  EXPECT_FALSE(fs::exists(out()));
  write_file(out(), "mine");
  try {
    convert_to_gguf(tiny("f32"), out(), GgmlType::F32, false);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
  EXPECT_EQ(read_file(out()), "mine");
  convert_to_gguf(tiny("f32"), out(), GgmlType::F32, true);
  EXPECT_NE(read_file(out()), "mine");
  EXPECT_THROW(parse_gguf_type("q4_0"), Error);
}

}  // namespace
}  // namespace pacer::workflow
