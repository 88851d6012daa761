#include "pacer/formats/convert_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/manifest.h"
#include "pacer/formats/model_folder.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

fs::path tiny_llama() { return test::golden("checkpoint_layouts/tiny_llama_f32.gguf"); }

TEST(ConvertGguf, TheFolderHoldsTheCheckpointThatTheFileWasMadeFrom) {
  const test::TemporaryFolder folder;
  const fs::path out = folder.path() / "tiny";
  ConvertOptions options;
  options.dtype = DType::F32;
  options.tokenizer_json = R"({"version":"1.0"})";
  uint64_t last = 0, all = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    last = done, all = total;
  };
  convert_gguf(tiny_llama(), out, options);
  EXPECT_EQ(last, all);

  const ModelFolder model = ModelFolder::open(out);
  const ModelFolder reference = ModelFolder::open(test::golden("llama_tiny/default"));
  for (const char* key :
       {"architectures", "hidden_size", "num_hidden_layers", "num_key_value_heads", "head_dim", "dtype", "vocab_size",
        "rms_norm_eps", "rope_parameters", "tie_word_embeddings", "model_type"}) {
    EXPECT_EQ(model.config()[key], reference.config()[key]) << key;
  }
  const auto found = model.tensors(), expected = reference.tensors();
  ASSERT_EQ(found->names(), expected->names());
  for (const std::string& name : found->names()) {
    EXPECT_EQ(found->tensor(name).shape, expected->tensor(name).shape) << name;
    EXPECT_TRUE(std::ranges::equal(found->tensor(name).bytes, expected->tensor(name).bytes)) << name;
  }
  EXPECT_EQ(read_file(model.tokenizer_json().value()), options.tokenizer_json);
  const Manifest manifest = read_manifest(out, "pacer.model", 1, ManifestCheck::checksums);
  EXPECT_EQ(manifest.fingerprints.at("source"), fingerprint_file(tiny_llama()));
  EXPECT_EQ(manifest.files.size(), 6u);
}

TEST(ConvertGguf, CarriesTemplateSpecialTokensAndLicence) {
  const test::TemporaryFolder folder;
  test::GgufBytes made;
  made.text("general.architecture", "llama")
      .text("general.name", "Small \"one\"")
      .text("general.license", "apache-2.0");
  made.text("general.license.link", "https://example.org/licence").text("general.base_model.0.name", "Larger");
  made.u32("llama.context_length", 64).u32("llama.embedding_length", 8).u32("llama.block_count", 1);
  made.u32("llama.feed_forward_length", 16).u32("llama.attention.head_count", 2);
  made.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  made.texts("tokenizer.ggml.tokens", {"<s>", "</s>", "a", "b", "<unk>"});
  made.u32("tokenizer.ggml.bos_token_id", 0)
      .u32("tokenizer.ggml.eos_token_id", 1)
      .u32("tokenizer.ggml.unknown_token_id", 4);
  made.flag("tokenizer.ggml.add_bos_token", true).text("tokenizer.chat_template", "{{ messages }}");
  made.floats("token_embd.weight", {5, 8}, std::vector<float>(40, 0.3f));
  const fs::path file = made.write(folder.path() / "small.gguf"), out = folder.path() / "small";
  convert_gguf(file, out, {});

  const ModelFolder model = ModelFolder::open(out);
  EXPECT_EQ(model.special_tokens(),
            (std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}));
  EXPECT_EQ(model.chat_templates(), (std::map<std::string, std::string>{{"default", "{{ messages }}"}}));
  EXPECT_EQ(model.tokenizer_config()["add_bos_token"], true);
  EXPECT_EQ(model.generation_config()["eos_token_id"], 1);
  EXPECT_EQ(model.tokenizer_json(), std::nullopt) << "no text was given";
  EXPECT_EQ(model.licence(), (std::vector<std::pair<std::string, std::string>>{
                                 {"license", "apache-2.0"}, {"license_link", "https://example.org/licence"}}));
  const std::string card = read_file(out / "README.md");
  EXPECT_THAT(card, HasSubstr("# Small \"one\""));
  EXPECT_THAT(card, HasSubstr("base_model.0.name: Larger"));
  EXPECT_EQ(model.tensors()->tensor("model.embed_tokens.weight").dtype, DType::BF16) << "unless asked otherwise";
}

TEST(ConvertGguf, LeavesNothingBehindWhenItFails) {
  const test::TemporaryFolder folder;
  const fs::path out = folder.path() / "out";
  EXPECT_THROW(convert_gguf(test::golden("checkpoint_layouts/quant_types.gguf"), out, {}), Error);
  ConvertOptions interrupted;
  interrupted.progress = [](uint64_t done, uint64_t) {
    if (done > 1000) throw Error(ErrorKind::resources, "the disk is full");
  };
  EXPECT_THROW(convert_gguf(tiny_llama(), out, interrupted), Error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  ConvertOptions integers;
  integers.dtype = DType::I8;
  EXPECT_THROW(convert_gguf(tiny_llama(), out, integers), Error);
}

TEST(ConvertGguf, ReplacesAFolderOnlyWhenAsked) {
  const test::TemporaryFolder folder;
  const fs::path out = folder.path() / "out";
  fs::create_directory(out);
  write_file(out / "old", "x");
  EXPECT_THROW(convert_gguf(tiny_llama(), out, {}), Error);
  EXPECT_TRUE(fs::exists(out / "old"));
  ConvertOptions options;
  options.replace = true;
  convert_gguf(tiny_llama(), out, options);
  EXPECT_FALSE(fs::exists(out / "old"));
  EXPECT_TRUE(fs::exists(out / "config.json"));
}

TEST(ConvertGguf, TextThatIsNotUtf8IsNamed) {
  const test::TemporaryFolder folder;
  std::string bytes = read_file(tiny_llama());
  const size_t at = bytes.find("</s>");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 2] = '\xff';
  write_file(folder.path() / "bad.gguf", bytes);
  try {
    convert_gguf(folder.path() / "bad.gguf", folder.path() / "out", {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("not UTF-8"));
  }
}

}  // namespace
}  // namespace pacer::formats
