#include "tests/cli/tiny_model.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "pacer/base/files.h"
#include "pacer/base/random.h"
#include "pacer/formats/tensor_source.h"
#include "tests/formats/gguf_bytes.h"

namespace pacer::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

void write_weights(const fs::path& file, const TinyModel& model) {
  const int64_t inner = 2 * model.hidden, keys = model.hidden / 2;
  std::vector<formats::TensorSpec> specs;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    specs.push_back({name, formats::DType::F32, std::move(shape)});
  };
  add("model.embed_tokens.weight", {model.rows, model.hidden});
  add("lm_head.weight", {model.rows, model.hidden});
  add("model.norm.weight", {model.hidden});
  for (int64_t i = 0; i < model.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    add(at + "input_layernorm.weight", {model.hidden});
    add(at + "post_attention_layernorm.weight", {model.hidden});
    add(at + "self_attn.q_proj.weight", {model.hidden, model.hidden});
    add(at + "self_attn.k_proj.weight", {keys, model.hidden});
    add(at + "self_attn.v_proj.weight", {keys, model.hidden});
    add(at + "self_attn.o_proj.weight", {model.hidden, model.hidden});
    add(at + "mlp.gate_proj.weight", {inner, model.hidden});
    add(at + "mlp.up_proj.weight", {inner, model.hidden});
    add(at + "mlp.down_proj.weight", {model.hidden, inner});
  }
  uint64_t number = 0;
  formats::write_safetensors(file, specs, [&](const formats::TensorSpec& spec, std::span<std::byte> bytes) {
    const RandomStream random(model.seed, Purpose::test, number++);
    const bool norm = spec.shape.size() == 1;
    const std::span<float> values(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i) values[i] = norm ? 1.0f : static_cast<float>(0.3 * random.normal(i));
    if (spec.name == "lm_head.weight") {  // rows without a token never win, as in padded models
      std::fill(values.begin() + 257 * model.hidden, values.end(), 0.0f);
    }
    if (model.not_a_number && spec.name == "model.layers.3.mlp.up_proj.weight") {
      values[5] = std::numeric_limits<float>::quiet_NaN();
    }
  });
}

}  // namespace

OrderedJson byte_tokenizer(int extra) {
  // The printable stand-ins of the bytes (Radford et al. 2019).
  OrderedJson vocabulary = OrderedJson::object();
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int point = itself ? byte : 0x100 + next++;
    std::string text;
    if (point < 0x80) {
      text.push_back(static_cast<char>(point));
    } else {
      text.push_back(static_cast<char>(0xC0 | (point >> 6)));
      text.push_back(static_cast<char>(0x80 | (point & 0x3F)));
    }
    vocabulary[text] = byte;
  }
  OrderedJson added = OrderedJson::array({{{"id", 256}, {"content", "<|end|>"}, {"special", true}}});
  for (int i = 0; i < extra; ++i) {
    added.push_back({{"id", 257 + i}, {"content", "<extra_" + std::to_string(i) + ">"}, {"special", true}});
  }
  const OrderedJson step = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", step},
          {"post_processor", nullptr},
          {"decoder", step},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", OrderedJson::array()}}}};
}

void write_tiny_model(const fs::path& folder, const TinyModel& model) {
  fs::create_directories(folder);
  const OrderedJson config = {{"architectures", {"LlamaForCausalLM"}},
                              {"model_type", "llama"},
                              {"hidden_act", "silu"},
                              {"vocab_size", model.rows},
                              {"hidden_size", model.hidden},
                              {"num_hidden_layers", model.layers},
                              {"intermediate_size", 2 * model.hidden},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"max_position_embeddings", model.max_position},
                              {"rms_norm_eps", 1e-5},
                              {"rope_theta", 10000.0},
                              {"tie_word_embeddings", false},
                              {"eos_token_id", 256},
                              {"torch_dtype", "float32"}};
  write_file(folder / "config.json", config.dump(2));
  write_file(folder / "tokenizer.json", byte_tokenizer().dump());
  write_file(folder / "tokenizer_config.json",
             OrderedJson{{"eos_token", "<|end|>"}, {"chat_template", kTemplate}}.dump(2));
  write_weights(folder / "model.safetensors", model);
}

void write_tiny_gguf(const fs::path& file) {
  constexpr uint64_t kHidden = 32, kInner = 64;
  test::GgufBytes gguf;
  gguf.text("general.architecture", "llama").text("general.name", "Tiny");
  gguf.u32("llama.context_length", 64).u32("llama.embedding_length", kHidden).u32("llama.block_count", 2);
  gguf.u32("llama.feed_forward_length", kInner).u32("llama.attention.head_count", 4);
  gguf.u32("llama.attention.head_count_kv", 2).f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  gguf.f32("llama.rope.freq_base", 10000.0f);
  gguf.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "smollm");
  gguf.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "\u0120", "1", "<|end|>"});
  gguf.texts("tokenizer.ggml.merges", {"a b"}).u32("tokenizer.ggml.eos_token_id", 5);
  uint64_t number = 0;
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape) {
    uint64_t count = 1;
    for (const uint64_t size : shape) count *= size;
    const RandomStream random(9, Purpose::test, number++);
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(random.normal(i));
    gguf.floats(name, shape, values);
  };
  add("token_embd.weight", {6, kHidden});
  add("output_norm.weight", {kHidden});
  for (const std::string at : {"blk.0.", "blk.1."}) {
    add(at + "attn_norm.weight", {kHidden});
    add(at + "ffn_norm.weight", {kHidden});
    add(at + "attn_q.weight", {kHidden, kHidden});
    add(at + "attn_k.weight", {kHidden / 2, kHidden});
    add(at + "attn_v.weight", {kHidden / 2, kHidden});
    add(at + "attn_output.weight", {kHidden, kHidden});
    add(at + "ffn_gate.weight", {kInner, kHidden});
    add(at + "ffn_up.weight", {kInner, kHidden});
    add(at + "ffn_down.weight", {kHidden, kInner});
  }
  gguf.write(file);
}

void write_prompts(const fs::path& file) {
  std::string lines;
  for (int i = 0; i < 6; ++i) {
    OrderedJson turns = {"Say the number " + std::to_string(i) + "."};
    if (i == 2) turns.push_back("Again.");
    lines += OrderedJson{{"id", "p" + std::to_string(i)}, {"turns", turns}}.dump() + "\n";
  }
  write_file(file, lines);
}

void write_training_rows(const fs::path& file, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const RandomStream random(7, Purpose::test, static_cast<uint64_t>(i));
    std::vector<int64_t> prompt, output;
    for (uint64_t t = 0; t < 5; ++t) prompt.push_back(static_cast<int64_t>(random.below(t, 256)));
    for (uint64_t t = 5; t < 20; ++t) output.push_back(static_cast<int64_t>(random.below(t, 256)));
    lines +=
        OrderedJson{{"id", "row-" + std::to_string(i)}, {"prompt_ids", prompt}, {"output_ids", output}}.dump() + "\n";
  }
  write_file(file, lines);
}

void write_tiny_recipe(const fs::path& file, const fs::path& model, const fs::path& rows, int steps) {
  const auto quoted = [](const fs::path& path) { return Json(path.string()).dump(); };
  write_file(file, "model:\n  target: " + quoted(model) +
                       "\n  dtype: f32\n"
                       "draft:\n  layers: 1\n  block_size: 4\n  taps: [1, 3]\n  markov_rank: 4\n  mask_token_id: 260\n"
                       "  dtype: f32\n"
                       "data:\n  train: " +
                       quoted(rows) +
                       "\n  validation_rows: 3\n  max_length: 64\n  sequences: 3\n  anchors: 4\n"
                       "features:\n  memory_mb: 8\n"
                       "optimizer:\n  learning_rate: 5e-3\n"
                       "loss:\n  tile_mb: 1\n"
                       "schedule:\n  steps: " +
                       std::to_string(steps) +
                       "\n  warmup_steps: 2\n"
                       "validation:\n  every: 4\n"
                       "checkpoint:\n  every: 2\n"
                       "logging:\n  every: 3\n"
                       "threads: 1\nseed: 3\n");
}

}  // namespace pacer::cli
