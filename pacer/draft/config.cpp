#include "pacer/draft/config.h"

#include <algorithm>
#include <utility>

#include "pacer/base/error.h"

namespace pacer::draft {
namespace {

[[noreturn]] void bad(const std::string& place, const std::string& field, const std::string& found,
                      const std::string& allowed, const std::string& hint = {}) {
  throw Error(ErrorKind::format, place + ": " + field + " is " + found + ", allowed: " + allowed, hint);
}

std::string joined(const std::vector<int64_t>& ids) {
  std::string text = "[";
  for (size_t i = 0; i < ids.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ids[i]);
  return text + "]";
}

// A config.json whose draft fields stand at the top (DeepSpec), in dflash_config (SpecForge), or in both. Null counts
// as absent.
class Fields {
 public:
  Fields(const Json& config, std::string place) : top_(config), place_(std::move(place)) {
    const auto nested = config.find("dflash_config");
    if (nested == config.end() || nested->is_null()) return;
    if (!nested->is_object()) bad(place_, "dflash_config", nested->dump(), "an object");
    nested_ = &*nested;
  }

  // The value and the name it has in messages; null when it stands nowhere.
  std::pair<const Json*, std::string> find(const std::string& name) const {
    const Json* outer = at(top_, name);
    const Json* inner = nested_ == nullptr ? nullptr : at(*nested_, name);
    if (outer != nullptr && inner != nullptr && *outer != *inner) {
      bad(place_, name, outer->dump() + " at the top and " + inner->dump() + " in dflash_config", "one value",
          "make both the same; a draft read with the wrong one accepts almost nothing");
    }
    if (outer != nullptr) return {outer, name};
    return {inner, "dflash_config." + name};
  }

  bool has(const std::string& name) const { return find(name).first != nullptr; }

  int64_t integer(const std::string& name, int64_t least) const {
    const auto [value, where] = required(name, "an integer");
    if (!value->is_number_integer()) bad(place_, where, value->dump(), "an integer");
    const auto number = value->get<int64_t>();
    if (number < least) bad(place_, where, value->dump(), "at least " + std::to_string(least));
    return number;
  }

  int64_t integer(const std::string& name, int64_t least, int64_t otherwise) const {
    return has(name) ? integer(name, least) : otherwise;
  }

  bool flag(const std::string& name, bool otherwise) const {
    const auto [value, where] = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) bad(place_, where, value->dump(), "true or false");
    return value->get<bool>();
  }

  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto [value, where] = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) bad(place_, where, value->dump(), "a string");
    return value->get<std::string>();
  }

  std::vector<int64_t> ids(const Json& list, const std::string& where) const {
    const auto integer = [](const Json& id) { return id.is_number_integer(); };
    if (!list.is_array() || list.empty() || !std::all_of(list.begin(), list.end(), integer)) {
      bad(place_, where, list.dump(), "a list of layer numbers");
    }
    return list.get<std::vector<int64_t>>();
  }

  std::pair<const Json*, std::string> required(const std::string& name, const std::string& allowed) const {
    const auto found = find(name);
    if (found.first == nullptr) bad(place_, name, "missing", allowed);
    return found;
  }

  const std::string& place() const { return place_; }

 private:
  static const Json* at(const Json& object, const std::string& name) {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  const Json& top_;
  const Json* nested_ = nullptr;
  std::string place_;
};

std::string architecture_of(const Json& config, const std::string& place) {
  const auto found = config.find("architectures");
  if (found == config.end() || found->is_null()) return {};
  if (!found->is_array() || found->size() != 1 || !found->front().is_string()) {
    bad(place, "architectures", found->dump(), "a list of one name");
  }
  return found->front().get<std::string>();
}

// What the published class names mean when no explicit flag is there.
bool slot_layout(const Fields& fields, const std::string& architecture) {
  if (fields.has("sample_from_anchor")) return fields.flag("sample_from_anchor", true);
  if (architecture == "Qwen3DSparkModel" || architecture == "DSparkDraftModel") return true;
  if (architecture == "DFlashDraftModel") return false;
  bad(fields.place(), "sample_from_anchor", "missing", "true or false",
      "architectures is " + (architecture.empty() ? std::string("missing") : "\"" + architecture + "\"") +
          ", which does not say what the slots mean; true: slot k predicts anchor + k + 1, false: slot j predicts "
          "anchor + j");
}

MarkovKind markov_kind(const Fields& fields, int64_t rank) {
  if (rank == 0) return MarkovKind::none;
  const std::string name = fields.text("markov_head_type", "");
  if (name == "vanilla") return MarkovKind::vanilla;
  if (name == "gated") return MarkovKind::gated;
  if (name == "rnn") return MarkovKind::rnn;
  bad(fields.place(), fields.find("markov_head_type").second, name.empty() ? "missing" : "\"" + name + "\"",
      "\"vanilla\", \"gated\", \"rnn\" (markov_rank is " + std::to_string(rank) + ")");
}

// Output ids: `capture` states its convention; the older field is always output ids.
std::vector<int64_t> tapped_layers(const Json& config, const Fields& fields) {
  std::vector<int64_t> ids;
  const auto [plain, plain_name] = fields.find("target_layer_ids");
  if (plain != nullptr) ids = fields.ids(*plain, plain_name);
  const auto capture = config.find("capture");
  if (capture != config.end() && !capture->is_null()) {
    if (!capture->is_object() || !capture->contains("ids") || !capture->contains("convention")) {
      bad(fields.place(), "capture", capture->dump(), "an object with convention and ids");
    }
    std::vector<int64_t> captured = fields.ids(capture->at("ids"), "capture.ids");
    const Json& convention = capture->at("convention");
    if (convention == "boundary") {  // boundary id b: the state that enters layer b
      for (int64_t& id : captured) --id;
    } else if (convention != "output") {
      bad(fields.place(), "capture.convention", convention.dump(), "\"output\" or \"boundary\"");
    }
    if (!ids.empty() && ids != captured) {
      bad(fields.place(), "capture", joined(captured) + " as output ids, target_layer_ids " + joined(ids),
          "one list of layers");
    }
    ids = std::move(captured);
  }
  if (ids.empty()) {
    bad(fields.place(), "target_layer_ids", "missing", "the list of tapped target layers",
        "the layers cannot be guessed: a draft reading others accepts about one token in ten");
  }
  return ids;
}

const char* markov_name(MarkovKind kind) {
  switch (kind) {
    case MarkovKind::vanilla:
      return "vanilla";
    case MarkovKind::gated:
      return "gated";
    case MarkovKind::rnn:
      return "rnn";
    case MarkovKind::none:
      return "none";
  }
  return "none";
}

}  // namespace

int64_t DraftConfig::draft_vocab() const {
  return kept_ids.empty() ? layer.vocab_size : static_cast<int64_t>(kept_ids.size());
}

DraftConfig DraftConfig::for_target(const target::ModelConfig& target, std::vector<int64_t> taps) {
  DraftConfig draft;
  draft.layer = target;
  draft.layer.architecture = "qwen3";
  draft.layer.qk_norm = true;
  draft.layer.qkv_bias = draft.layer.o_bias = draft.layer.mlp_bias = false;
  draft.layer.tied_embeddings = false;
  draft.layer.sliding_window.clear();
  draft.layer.layers = draft.layers = 1;
  draft.target_layers = target.layers;
  draft.target_layer_ids = taps.empty() ? target::default_taps(target.layers) : std::move(taps);
  return draft;
}

DraftConfig DraftConfig::from_json(const Json& config, const std::string& place, std::vector<int64_t> kept_ids) {
  if (!config.is_object()) bad(place, "the file", config.type_name(), "a JSON object");
  const Fields fields(config, place);
  const std::string architecture = architecture_of(config, place);

  DraftConfig draft;
  const std::string projector = fields.text("projector_type", "");
  if (!projector.empty() && projector != "dspark" && projector != "dflash") {
    bad(place, "dflash_config.projector_type", "\"" + projector + "\"", "\"dspark\" or \"dflash\"");
  }
  draft.sample_from_anchor = slot_layout(fields, architecture);
  Json layer = config;  // the draft's layers are Qwen3's under another class name
  layer["architectures"] = {"Qwen3ForCausalLM"};
  draft.layer = target::ModelConfig::from_json(layer, place);
  draft.layers = draft.layer.layers;
  draft.sliding_window = draft.layer.sliding_window;
  const auto slides = [](const std::optional<int64_t>& window) { return window.has_value(); };
  if (std::none_of(draft.sliding_window.begin(), draft.sliding_window.end(), slides)) draft.sliding_window.clear();

  draft.block_size = fields.integer("block_size", 1);
  draft.mask_token_id = fields.integer("mask_token_id", 0);
  draft.target_layers = fields.integer("num_target_layers", 1);
  draft.target_layer_ids = tapped_layers(config, fields);
  draft.markov_rank = fields.integer("markov_rank", 0, 0);
  draft.markov = markov_kind(fields, draft.markov_rank);
  draft.confidence_head = fields.flag("enable_confidence_head", false);
  draft.confidence_with_markov = draft.confidence_head && fields.flag("confidence_head_with_markov", false);
  draft.method = draft.markov == MarkovKind::none && !draft.confidence_head ? "dflash" : "dspark";

  const int64_t draft_vocab = fields.integer("draft_vocab_size", 1, draft.layer.vocab_size);
  const int64_t kept = kept_ids.empty() ? draft.layer.vocab_size : static_cast<int64_t>(kept_ids.size());
  if (draft_vocab != kept) {
    bad(place, "draft_vocab_size", std::to_string(draft_vocab),
        std::to_string(kept) + (kept_ids.empty() ? ", the vocabulary, because the weight file has no d2t"
                                                 : ", the length of d2t in the weight file"));
  }
  draft.kept_ids = std::move(kept_ids);
  draft.validate(place);
  return draft;
}

void DraftConfig::validate(const std::string& place) const {
  const int64_t vocabulary = layer.vocab_size;
  if (block_size < 1 || drafts_per_block() < 1) {
    bad(place, "block_size", std::to_string(block_size), sample_from_anchor ? "at least 1" : "at least 2");
  }
  if (mask_token_id < 0 || mask_token_id >= vocabulary) {
    bad(place, "mask_token_id", std::to_string(mask_token_id), "0 to " + std::to_string(vocabulary - 1),
        "choose a token that never occurs in text, such as an unused special token");
  }
  if (layers < 1 || layer.layers != layers) {
    bad(place, "num_hidden_layers", std::to_string(layers), "at least 1 and the same in both places");
  }
  if (!layer.qk_norm) bad(place, "the layer", "without q_norm and k_norm", "a Qwen3-like layer with both");
  if (layer.mlp_bias) bad(place, "mlp_bias", "true", "false");
  if (!sliding_window.empty() && static_cast<int64_t>(sliding_window.size()) != layers) {
    bad(place, "layer_types", std::to_string(sliding_window.size()) + " entries",
        std::to_string(layers) + ", one per draft layer");
  }
  // The last layer's output is stored before the final norm by some systems and after it by others.
  for (size_t i = 0; i < target_layer_ids.size(); ++i) {
    const int64_t id = target_layer_ids[i];
    if (id < -1 || id > target_layers - 2 || (i > 0 && id <= target_layer_ids[i - 1])) {
      bad(place, "target_layer_ids", joined(target_layer_ids),
          "ascending, from -1 (the embedding output) to " + std::to_string(target_layers - 2));
    }
  }
  if (target_layer_ids.empty()) bad(place, "target_layer_ids", "[]", "at least one layer");
  if ((markov == MarkovKind::none) != (markov_rank == 0)) {
    bad(place, "markov_rank", std::to_string(markov_rank),
        markov == MarkovKind::none ? "0 without a Markov head" : "at least 1 with a Markov head");
  }
  if (confidence_with_markov && (!confidence_head || markov == MarkovKind::none)) {
    bad(place, "confidence_head_with_markov", "true", "false without both a confidence head and a Markov head");
  }
  for (size_t i = 0; i < kept_ids.size(); ++i) {
    if (kept_ids[i] < 0 || kept_ids[i] >= vocabulary || (i > 0 && kept_ids[i] <= kept_ids[i - 1])) {
      bad(place, "kept id " + std::to_string(i), std::to_string(kept_ids[i]),
          "ascending target ids below " + std::to_string(vocabulary));
    }
  }
}

Json DraftConfig::to_json() const {
  target::ModelConfig base = layer;
  base.layers = layers;
  base.sliding_window = sliding_window;
  Json config = base.to_json();
  config["architectures"] = {sample_from_anchor ? "Qwen3DSparkModel" : "DFlashDraftModel"};
  config["tie_word_embeddings"] = false;
  config["num_target_layers"] = target_layers;
  config["block_size"] = block_size;
  config["mask_token_id"] = mask_token_id;
  config["target_layer_ids"] = target_layer_ids;
  config["sample_from_anchor"] = sample_from_anchor;
  config["capture"] = {{"convention", "output"}, {"ids", target_layer_ids}};
  config["markov_rank"] = markov_rank;
  if (markov != MarkovKind::none) config["markov_head_type"] = markov_name(markov);
  config["enable_confidence_head"] = confidence_head;
  if (confidence_head) config["confidence_head_with_markov"] = confidence_with_markov;
  if (reduced()) config["draft_vocab_size"] = draft_vocab();
  // The engines that serve the anchor-slot layout look for these two in the nested object only.
  if (!sample_from_anchor) {
    config["dflash_config"] = {{"target_layer_ids", target_layer_ids}, {"mask_token_id", mask_token_id}};
  }
  return config;
}

}  // namespace pacer::draft
