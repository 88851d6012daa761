#include "pacer/target/config.h"

#include <ATen/ops/max.h>

#include "pacer/base/error.h"
#include "pacer/target/rope_frequencies.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::target {
namespace {

Json base_config(const std::string& model = "llama_tiny/default") {
  return read_json(test::golden(model) / "config.json");
}

std::string message_of(const Json& config) {
  try {
    ModelConfig::from_json(config, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    return error.what();
  }
  return "no error";
}

// What a refusal must name: the field or value at fault.
void expect_refusal(const Json& config, const std::string& named) {
  EXPECT_NE(message_of(config).find(named), std::string::npos) << message_of(config) << "\nshould name " << named;
}

TEST(ModelConfig, RefusesWhatIsNotSupportedByName) {
  const auto with = [](const char* field, const Json& value) {
    Json config = base_config();
    config[field] = value;
    return config;
  };
  expect_refusal(with("model_type", "mamba"), "mamba");
  expect_refusal(with("architectures", {"LlamaForSequenceClassification"}), "architectures");
  expect_refusal(with("hidden_act", "gelu"), "hidden_act");
  expect_refusal(with("quantization_config", {{"bits", 4}}), "quantization_config");
  expect_refusal(with("num_key_value_heads", 3), "num_key_value_heads");
  expect_refusal(with("vocab_size", "many"), "vocab_size");
  expect_refusal(with("rms_norm_eps", -1), "rms_norm_eps");
  expect_refusal(with("partial_rotary_factor", 0.5), "partial_rotary_factor");
  expect_refusal(with("head_dim", 7), "head_dim");
  expect_refusal(with("rope_theta", 1.0), "rope_theta");  // beside another one in rope_parameters
  expect_refusal(with("rope_parameters", {{"rope_type", "longrope"}, {"rope_theta", 1e4}}), "longrope");
  expect_refusal(with("rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 1e4}}), "factor");
  expect_refusal(with("eos_token_id", "two"), "eos_token_id");
  Json missing = base_config();
  missing.erase("hidden_size");
  expect_refusal(missing, "hidden_size");
  Json windows = base_config("qwen2_tiny/sliding_window");
  windows["layer_types"] = {"full_attention", "chunked_attention", "full_attention"};
  expect_refusal(windows, "layer_types");
  expect_refusal(Json::array(), "object");
}

TEST(ModelConfig, SlidingLayersInBothSpellings) {
  for (const char* file : {"config.json", "config_legacy.json"}) {
    const auto path = test::golden("qwen2_tiny/sliding_window") / file;
    const Json json = read_json(path);
    const ModelConfig config = ModelConfig::from_json(json, path.string());
    const auto first = json.at("max_window_layers").get<size_t>();
    ASSERT_EQ(config.sliding_window.size(), static_cast<size_t>(config.layers)) << file;
    for (size_t i = 0; i < config.sliding_window.size(); ++i) {
      EXPECT_EQ(config.sliding_window[i].has_value(), i >= first) << file << " layer " << i;
      EXPECT_EQ(config.sliding_window[i].value_or(0), i >= first ? json.at("sliding_window").get<int64_t>() : 0);
    }
  }
}

TEST(ModelConfig, SeveralStopTokens) {
  Json config = base_config();
  config["eos_token_id"] = {5, 9};
  const ModelConfig parsed = ModelConfig::from_json(config, "config.json");
  EXPECT_EQ(parsed.eos_ids, (std::vector<int64_t>{5, 9}));
  EXPECT_EQ(ModelConfig::from_json(parsed.to_json(), "written").eos_ids, parsed.eos_ids);
}

// The list that published drafts of these depths use; halves round to the even side.
TEST(DefaultTaps, PublishedLists) {
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(default_taps(36, 1), (Ids{18}));
  EXPECT_EQ(default_taps(36), (Ids{1, 9, 17, 25, 33}));
  EXPECT_EQ(default_taps(32), (Ids{1, 8, 15, 22, 29}));
  EXPECT_EQ(default_taps(64), (Ids{1, 16, 31, 46, 61}));
  EXPECT_EQ(default_taps(28, 4), (Ids{1, 9, 17, 25}));
  EXPECT_EQ(default_taps(24), (Ids{1, 11, 21}));
  EXPECT_EQ(default_taps(30), (Ids{1, 14, 27}));
  EXPECT_EQ(default_taps(9, 4), (Ids{1, 3, 4, 6}));
  EXPECT_EQ(default_taps(16, 9), (Ids{1, 2, 4, 6, 7, 8, 10, 12, 13}));
  EXPECT_THROW(default_taps(3), Error);
  EXPECT_THROW(default_taps(30, 0), Error);
}

class RopeTables : public ::testing::TestWithParam<std::string> {};

TEST_P(RopeTables, MatchTheReferenceUpToPosition131071) {
  const Json settings = test::golden_json("llama_tiny/rope_tables.json").at(GetParam());
  Json json = base_config();
  for (const auto& [field, value] : settings.items()) json[field] = value;
  const ModelConfig config = ModelConfig::from_json(json, GetParam());
  const nn::RopeTable table = rope_table(config.rope, config.head_dim, config.max_position);

  const test::GoldenTensors golden("llama_tiny/rope_tables.safetensors");
  const at::Tensor frequencies = golden[GetParam() + ".inv_freq"];
  ASSERT_EQ(table.inverse_frequencies().size(), static_cast<size_t>(frequencies.numel()));
  for (int64_t i = 0; i < frequencies.numel(); ++i) {
    EXPECT_FLOAT_EQ(table.inverse_frequencies()[static_cast<size_t>(i)], frequencies[i].item<float>()) << i;
  }
  EXPECT_NEAR(table.scaling(), golden[GetParam() + ".attention_scaling"].item<double>(), 1e-12);

  const at::Tensor positions = golden["positions"];
  const nn::RopeRows rows = table.rows(positions);
  // The f64 tables are the truth; the stored f32 ones carry the rounding of the reference's f32 angle. One bound for
  // all positions, the last of which would be a radian off with frequencies in bf16 and 1e-3 off with an angle in f32.
  ASSERT_EQ(positions.max().item<int64_t>(), 131071);
  EXPECT_TRUE(test::close(rows.cos, golden[GetParam() + ".f64.cos_half"], 1e-6, 0));
  EXPECT_TRUE(test::close(rows.sin, golden[GetParam() + ".f64.sin_half"], 1e-6, 0));
}

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  const Json tables = test::golden_json("llama_tiny/rope_tables.json");
  for (const auto& [name, settings] : tables.items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Settings, RopeTables, ::testing::ValuesIn(table_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace pacer::target
