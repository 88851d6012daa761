#include "pacer/conformance/tiny.h"

#include <algorithm>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/base/random.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/target/weights.h"

namespace pacer::conformance {
namespace {

namespace fs = std::filesystem;

const Json& tiny_config() {
  static const Json config = {{"architectures", {"Qwen3ForCausalLM"}},
                              {"model_type", "qwen3"},
                              {"vocab_size", kTinyVocabulary},
                              {"hidden_size", 32},
                              {"num_hidden_layers", 6},
                              {"intermediate_size", 64},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"head_dim", 8},
                              {"max_position_embeddings", 256},
                              {"rms_norm_eps", 1e-6},
                              {"rope_theta", 10000.0},
                              {"hidden_act", "silu"},
                              {"attention_bias", false},
                              {"tie_word_embeddings", false},
                              {"torch_dtype", "float32"},
                              {"eos_token_id", 1}};
  return config;
}

}  // namespace

void write_tiny_target(const fs::path& folder) {
  fs::create_directories(folder);
  write_file(folder / "config.json", tiny_config().dump(2) + "\n");
  std::vector<formats::TensorSpec> specs;
  for (const auto& [name, shape] : target::weight_shapes(target::ModelConfig::from_json(tiny_config(), "tiny"))) {
    specs.push_back({name, formats::DType::F32, shape});
  }
  uint64_t number = 0;
  formats::write_safetensors(
      folder / "model.safetensors", specs, [&](const formats::TensorSpec& spec, std::span<std::byte> bytes) {
        const RandomStream random(5, Purpose::test, number++);
        const std::span<float> values(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
        const bool norm = spec.shape.size() == 1;
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<float>(norm ? 1.0 + 0.1 * random.normal(i) : 0.25 * random.normal(i));
        }
      });
}

std::vector<TinyRow> tiny_rows(int64_t count) {
  std::vector<TinyRow> rows;
  for (int64_t i = 0; i < count; ++i) {
    const RandomStream random(1, Purpose::test, 0, static_cast<uint64_t>(i));
    TinyRow row;
    const uint64_t prompt = 4 + random.below(0, 5), answer = 8 + random.below(1, 13);
    for (uint64_t t = 0; t < prompt; ++t) row.prompt.push_back(static_cast<int64_t>(random.below(100 + t, 90)));
    for (uint64_t t = 0; t < answer; ++t) row.answer.push_back(static_cast<int64_t>((7 * t + random.below(2, 3)) % 90));
    rows.push_back(std::move(row));
  }
  return rows;
}

draft::DraftConfig tiny_draft(const target::Target& target, const std::string& method, draft::MarkovKind markov) {
  draft::DraftConfig config = draft::DraftConfig::for_target(target.config(), {0, 2, 4});
  config.method = method;
  config.block_size = 4;
  config.mask_token_id = kTinyVocabulary - 1;
  config.sample_from_anchor = method == "dspark";
  config.markov = markov;
  config.markov_rank = markov == draft::MarkovKind::none ? 0 : 8;
  config.confidence_head = method == "dspark";
  config.confidence_with_markov = config.confidence_head && markov != draft::MarkovKind::none;
  return config;
}

draft::FeatureBatch tiny_features(const target::Target& target, const std::vector<TinyRow>& rows,
                                  const std::vector<int64_t>& taps) {
  std::vector<std::vector<int64_t>> sequences;
  std::vector<uint8_t> supervised;
  draft::FeatureBatch batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    sequences.push_back(rows[i].prompt);
    sequences.back().insert(sequences.back().end(), rows[i].answer.begin(), rows[i].answer.end());
    supervised.insert(supervised.end(), rows[i].prompt.size(), 0);
    supervised.insert(supervised.end(), rows[i].answer.size(), 1);
    batch.sample_ids.push_back(i);
  }
  const target::TokenBatch tokens = target::TokenBatch::packed(sequences);
  const target::TargetOutput states = target.forward(tokens, taps);
  batch.ids = tokens.ids, batch.starts = tokens.starts;
  batch.supervised = at::empty({static_cast<int64_t>(supervised.size())}, at::kByte);
  std::ranges::copy(supervised, batch.supervised.mutable_data_ptr<uint8_t>());
  batch.tapped = states.tapped, batch.last = states.last;
  return batch;
}

train::Recipe tiny_recipe(const fs::path& folder, const std::string& device) {
  write_tiny_target(folder / "target");
  std::string lines;
  int64_t number = 0;
  for (const TinyRow& row : tiny_rows(30)) {
    lines += Json{{"id", "row-" + std::to_string(number++)},
                  {"prompt_ids", row.prompt},
                  {"output_ids", row.answer},
                  {"finish_reason", "stop"}}
                 .dump() +
             "\n";
  }
  write_file(folder / "rows.jsonl", lines);
  train::Recipe recipe;
  recipe.model.target = (folder / "target").string();
  recipe.model.dtype = "f32";
  recipe.draft.layers = 1;
  recipe.draft.block_size = 4;
  recipe.draft.taps = {0, 2, 4};
  recipe.draft.markov_rank = 8;
  recipe.draft.mask_token_id = kTinyVocabulary - 1;
  recipe.draft.dtype = "f32";
  recipe.data.train = (folder / "rows.jsonl").string();
  recipe.data.max_length = 64;
  recipe.data.sequences = 3;
  recipe.data.anchors = 4;
  recipe.features.memory_mb = 8;
  recipe.optimizer.learning_rate = 5e-3;
  recipe.loss.tile_mb = 1;
  recipe.schedule.steps = 20;
  recipe.schedule.warmup_steps = 2;
  recipe.logging.every = 1;
  recipe.logging.tensorboard = false;
  recipe.checkpoint.every = 10;
  recipe.seed = 3;
  recipe.threads = 1;
  recipe.device = device;
  return recipe;
}

}  // namespace pacer::conformance
