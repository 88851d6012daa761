#include "pacer/train/draft_setup.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/data/vocabulary.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/text/tokenizer.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

draft::MarkovKind markov_kind(const std::string& name) {
  if (name == "vanilla") return draft::MarkovKind::vanilla;
  if (name == "gated") return draft::MarkovKind::gated;
  if (name == "rnn") return draft::MarkovKind::rnn;
  return draft::MarkovKind::none;
}

}  // namespace

at::ScalarType parse_dtype(const std::string& name) {
  if (name == "f32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  throw Error(ErrorKind::bug, "the dtype '" + name + "' passed the checks of the recipe");
}

draft::LossOptions loss_options(const Recipe& recipe) {
  draft::LossOptions options;
  options.ce_alpha = recipe.loss.ce;
  options.l1_alpha = recipe.loss.l1;
  options.soft_labels = recipe.loss.labels == "soft";
  options.confidence_alpha = recipe.loss.confidence;
  options.decay_gamma = recipe.loss.decay_gamma;
  options.decay_kind = recipe.loss.weights == "decay" ? "dspark" : recipe.loss.weights;
  options.dpace_alpha = recipe.loss.dpace_alpha;
  options.renormalised_teacher = recipe.loss.renormalised_teacher;
  options.tile_bytes = recipe.loss.tile_mb << 20;
  options.anchors_at_once = recipe.data.anchors_at_once;
  options.fixed_parts = recipe.parallel.exact;
  return options;
}

double coverage(const std::vector<data::TokenRow>& rows, const std::vector<int64_t>& kept_ids) {
  if (kept_ids.empty()) return 1;
  int64_t kept = 0, total = 0;
  for (const data::TokenRow& row : rows) {
    for (size_t i = 0; i < row.ids.size(); ++i) {
      if (row.supervised[i] == 0) continue;
      ++total;
      kept += std::ranges::binary_search(kept_ids, row.ids[i]) ? 1 : 0;
    }
  }
  return total == 0 ? 1 : static_cast<double>(kept) / static_cast<double>(total);
}

int64_t mask_token(const Recipe& recipe, const target::ModelConfig& target, const std::vector<data::TokenRow>& rows) {
  int64_t id = 0;
  if (recipe.draft.mask_token_id) {
    id = *recipe.draft.mask_token_id;
  } else {
    const auto tokenizer = text::Tokenizer::load(recipe.model.target);
    id = tokenizer->vocab_size();
    if (id >= target.vocab_size) {
      std::string unused;
      const std::vector<int64_t> stops = target.eos_ids;
      for (const auto& [name, special] : tokenizer->special_tokens()) {
        if (unused.size() < 200 && std::ranges::find(stops, special) == stops.end()) {
          unused += (unused.empty() ? "" : ", ") + std::to_string(special) + " " + name;
        }
      }
      throw Error(ErrorKind::usage,
                  "draft.mask_token_id is not given and the tokenizer uses all " + std::to_string(target.vocab_size) +
                      " ids of the target",
                  "give the id of a special token that no answer contains; there are " + unused);
    }
  }
  if (id >= target.vocab_size) {
    throw Error(ErrorKind::usage, "draft.mask_token_id is " + std::to_string(id) + "; allowed: below " +
                                      std::to_string(target.vocab_size) + ", the target's vocabulary");
  }
  for (const data::TokenRow& row : rows) {
    if (std::ranges::find(row.ids, id) == row.ids.end()) continue;
    throw Error(ErrorKind::usage,
                "draft.mask_token_id is " + std::to_string(id) + ", which occurs in training row '" + row.id + "'",
                "choose a token that never occurs in text");
  }
  return id;
}

draft::DraftConfig draft_config(const Recipe& recipe, const target::ModelConfig& target,
                                const std::vector<data::TokenRow>& rows) {
  const DraftSection& section = recipe.draft;
  draft::DraftConfig config = draft::DraftConfig::for_target(target);
  config.method = section.method;
  config.layers = config.layer.layers = section.layers;
  config.block_size = section.block_size;
  config.sample_from_anchor = section.sample_from_anchor;
  if (!section.taps.empty()) config.target_layer_ids = section.taps;
  config.mask_token_id = mask_token(recipe, target, rows);
  if (section.method == "dspark") {
    config.markov = markov_kind(section.markov);
    config.markov_rank = config.markov == draft::MarkovKind::none ? 0 : section.markov_rank;
    config.confidence_head = section.confidence;
    config.confidence_with_markov =
        section.confidence && section.confidence_with_markov && config.markov != draft::MarkovKind::none;
  }
  for (const int64_t window : section.sliding_window) {
    config.sliding_window.push_back(window > 0 ? std::optional<int64_t>(window) : std::nullopt);
  }
  if (section.vocabulary > 0 && section.vocabulary != target.vocab_size) {
    if (section.vocabulary > target.vocab_size) {
      throw Error(ErrorKind::usage,
                  "draft.vocabulary is " + std::to_string(section.vocabulary) + "; the target has only " +
                      std::to_string(target.vocab_size) + " tokens",
                  "0 takes them all");
    }
    config.kept_ids = data::select_vocabulary(rows, section.vocabulary, target.vocab_size).kept_ids;
  }
  try {
    config.validate("recipe, section draft");
  } catch (const Error& error) {  // the same words, but here it is a setting and not a file
    throw Error(ErrorKind::usage, error.what(), error.hint());
  }
  return config;
}

target::ModelConfig read_target_config(const fs::path& path) {
  if (path.extension() == ".gguf" && !fs::is_directory(path)) {
    return target::ModelConfig::from_json(formats::GgufModel::open(path)->config(), path.string());
  }
  const fs::path file = path / "config.json";
  return target::ModelConfig::from_json(read_json(file), file.string());
}

std::string target_fingerprint(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".safetensors" || entry.path().filename() == "config.json") files.push_back(entry.path());
    }
    std::ranges::sort(files);
  } else {
    files.push_back(path);
  }
  constexpr size_t kEnds = size_t{1} << 20;
  uint32_t sum = 0;
  uint64_t size = 0;
  for (const fs::path& file : files) {
    const auto map = MappedFile::open(file);
    const auto bytes = map->bytes();
    const std::string name = file.filename().string() + ":" + std::to_string(bytes.size());
    sum = crc32c(std::as_bytes(std::span(name)), sum);
    sum = crc32c(bytes.first(std::min(kEnds, bytes.size())), sum);
    sum = crc32c(bytes.last(std::min(kEnds, bytes.size())), sum);
    size += bytes.size();
  }
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%08x-%llx", sum, static_cast<unsigned long long>(size));
  return text.data();
}

}  // namespace pacer::train
