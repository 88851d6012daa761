// GGUF metadata says what tokenizer.json says, in other words; here it is put into those of tokenizer.json.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/formats/gguf.h"
#include "pacer/text/gguf_pre_types.h"
#include "pacer/text/tokenizer_json.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {
namespace {

using formats::GgufFile;

constexpr std::string_view kVisibleSpace = "\xE2\x96\x81";  // U+2581

class GgufTokenizer {
 public:
  explicit GgufTokenizer(const GgufFile& file) : file_(file), tokens_(file.texts("tokenizer.ggml.tokens")) {}

  TokenizerSpec read() {
    const std::string model = file_.text("tokenizer.ggml.model");
    if (model != "gpt2" && model != "llama") {
      refuse("tokenizer.ggml.model: \"" + model + "\" is not supported; supported: gpt2, llama",
             "load the tokenizer from the tokenizer.json of the model instead");
    }
    spec_.place = file_.place();
    read_vocabulary();
    spec_.frame = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", added_tokens()}};
    if (model == "gpt2") {
      byte_level_bpe();
    } else {
      sentence_piece_bpe();
    }
    return std::move(spec_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) const {
    throw Error(ErrorKind::format, file_.place() + ": " + what, hint);
  }

  void read_vocabulary() {
    types_.assign(tokens_.size(), kGgufNormal);
    if (file_.has("tokenizer.ggml.token_type")) types_ = file_.integers("tokenizer.ggml.token_type");
    if (types_.size() != tokens_.size()) {
      refuse("tokenizer.ggml.token_type has " + std::to_string(types_.size()) + " entries, tokenizer.ggml.tokens " +
             std::to_string(tokens_.size()));
    }
    if (static_cast<int64_t>(tokens_.size()) > Vocabulary::kMaxId) {
      refuse("tokenizer.ggml.tokens: more than " + std::to_string(Vocabulary::kMaxId) + " tokens");
    }
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const std::string where = "tokenizer.ggml.tokens[" + std::to_string(id) + "]";
      if (find_invalid_utf8(tokens_[id]) != std::string_view::npos) refuse(where + " is not UTF-8");
      if (!spec_.vocabulary.add(tokens_[id], static_cast<int32_t>(id))) {
        refuse(where + ": \"" + std::string(tokens_[id]) + "\" is there twice");
      }
    }
  }

  OrderedJson added_tokens() const {
    OrderedJson added = OrderedJson::array();
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] != kGgufControl && types_[id] != kGgufUserDefined && types_[id] != kGgufUnknown) continue;
      added.push_back({{"id", id},
                       {"content", tokens_[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types_[id] != kGgufUserDefined}});
    }
    return added;
  }

  // The text of a token that a metadata key names by its id.
  std::string named_token(const std::string& key) const {
    const int64_t id = file_.integer(key);
    if (id < 0 || static_cast<size_t>(id) >= tokens_.size()) {
      refuse(key + ": " + std::to_string(id) + "; there are " + std::to_string(tokens_.size()) + " tokens");
    }
    return std::string(tokens_[static_cast<size_t>(id)]);
  }

  // Beginning and end of text as a template, or null when neither is added.
  OrderedJson text_template(bool add_bos) const {
    add_bos = file_.find_boolean("tokenizer.ggml.add_bos_token").value_or(add_bos);
    const bool add_eos = file_.find_boolean("tokenizer.ggml.add_eos_token").value_or(false);
    if (!add_bos && !add_eos) return nullptr;
    OrderedJson single = OrderedJson::array(), pair = OrderedJson::array(), special = OrderedJson::object();
    const auto add_special = [&](const std::string& key, int type_id, bool in_single) {
      const std::string token = named_token(key);
      const OrderedJson part = {{"SpecialToken", {{"id", token}, {"type_id", type_id}}}};
      if (in_single) single.push_back(part);
      pair.push_back(part);
      special[token] = {{"id", token}, {"ids", {file_.integer(key)}}, {"tokens", {token}}};
    };
    for (const int type_id : {0, 1}) {
      if (add_bos) add_special("tokenizer.ggml.bos_token_id", type_id, type_id == 0);
      const OrderedJson part = {{"Sequence", {{"id", type_id == 0 ? "A" : "B"}, {"type_id", type_id}}}};
      if (type_id == 0) single.push_back(part);
      pair.push_back(part);
      if (add_eos) add_special("tokenizer.ggml.eos_token_id", type_id, type_id == 0);
    }
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
  }

  OrderedJson bpe_model(const OrderedJson& unknown_token, bool sentence_piece, bool ignore_merges) const {
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", unknown_token},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", sentence_piece},
            {"byte_fallback", sentence_piece},
            {"ignore_merges", ignore_merges}};
  }

  void byte_level_bpe() {
    if (!file_.has("tokenizer.ggml.pre")) {
      refuse("tokenizer.ggml.pre is missing, so how text is cut is not known",
             "convert the model again with a current tool, or load its tokenizer.json");
    }
    const std::string name = file_.text("tokenizer.ggml.pre");
    const auto found = gguf_pre_types().find(name);
    if (found == gguf_pre_types().end()) {
      std::string allowed;
      for (const auto& [known, unused_type] : gguf_pre_types()) allowed += (allowed.empty() ? "" : ", ") + known;
      refuse("tokenizer.ggml.pre: \"" + name + "\" is not supported; supported: " + allowed,
             "load the tokenizer from the tokenizer.json of the model instead");
    }
    const GgufPreType& type = found->second;
    const bool prefix = file_.find_boolean("tokenizer.ggml.add_space_prefix").value_or(false);
    spec_.frame["normalizer"] = type.normalizer;
    spec_.frame["pre_tokenizer"] = pre_tokenizer_json(type, prefix);
    spec_.frame["post_processor"] = text_template(type.add_bos);
    spec_.frame["decoder"] = byte_level_json(prefix, type.gpt2_pattern);
    spec_.frame["model"] = bpe_model(nullptr, false, type.ignore_merges);

    const auto merges = file_.texts("tokenizer.ggml.merges");
    spec_.merges.reserve(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const size_t space = merges[i].find(' ', 1);
      if (space == std::string_view::npos || merges[i].find(' ', space + 1) != std::string_view::npos) {
        refuse("tokenizer.ggml.merges[" + std::to_string(i) + "]: \"left right\" expected, found \"" +
               std::string(merges[i]) + "\"");
      }
      spec_.merges.emplace_back(merges[i].substr(0, space), merges[i].substr(space + 1));
    }
  }

  // SentencePiece joins the pair whose union has the best score. As a merge list: every way to make a token of two
  // others, in the order of the token's score, the way the models' own tokenizer.json files were made.
  void sentence_piece_bpe() {
    if (file_.find_boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false)) {
      refuse("tokenizer.ggml.remove_extra_whitespaces: true is not supported", "load the tokenizer.json of the model");
    }
    if (file_.has("tokenizer.ggml.precompiled_charsmap")) {
      refuse("tokenizer.ggml.precompiled_charsmap is not supported", "load the tokenizer.json of the model");
    }
    const std::vector<double> scores = file_.numbers("tokenizer.ggml.scores");
    if (scores.size() != tokens_.size()) {
      refuse("tokenizer.ggml.scores has " + std::to_string(scores.size()) + " entries, tokenizer.ggml.tokens " +
             std::to_string(tokens_.size()));
    }
    const bool prefix = file_.find_boolean("tokenizer.ggml.add_space_prefix").value_or(true);
    const OrderedJson space_to_visible = {
        {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kVisibleSpace}};
    const OrderedJson visible_to_space = {
        {"type", "Replace"}, {"pattern", {{"String", kVisibleSpace}}}, {"content", " "}};
    std::vector<OrderedJson> normalizers, decoders = {visible_to_space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
    if (prefix) {
      normalizers.push_back({{"type", "Prepend"}, {"prepend", kVisibleSpace}});
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    normalizers.push_back(space_to_visible);
    spec_.frame["normalizer"] = sequence_json("normalizers", std::move(normalizers));
    spec_.frame["pre_tokenizer"] = nullptr;
    spec_.frame["post_processor"] = text_template(/*add_bos=*/true);
    spec_.frame["decoder"] = sequence_json("decoders", std::move(decoders));
    const std::string unknown_key = "tokenizer.ggml.unknown_token_id";
    spec_.frame["model"] =
        bpe_model(file_.has(unknown_key) ? OrderedJson(named_token(unknown_key)) : OrderedJson(nullptr), true, false);
    merges_from_scores(scores);
  }

  void merges_from_scores(const std::vector<double>& scores) {
    struct Split {
      double score;
      size_t left_length, right_length;  // code points
      int32_t left, right;
    };
    std::vector<Split> splits;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] != kGgufNormal && types_[id] != kGgufUserDefined) continue;
      const std::string_view token = tokens_[id];
      const size_t length = count_code_points(token);
      std::vector<Split> own;
      size_t at = 0;
      for (size_t i = 1; i < length; ++i) {
        at += utf8_length(token[at]);
        const int32_t left = spec_.vocabulary.id_of(token.substr(0, at)),
                      right = spec_.vocabulary.id_of(token.substr(at));
        if (left >= 0 && right >= 0) own.push_back({scores[id], i, length - i, left, right});
      }
      std::sort(own.begin(), own.end(),
                [](const Split& a, const Split& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
      splits.insert(splits.end(), own.begin(), own.end());
    }
    std::stable_sort(splits.begin(), splits.end(), [](const Split& a, const Split& b) {
      return std::tie(a.score, a.left_length, a.right_length) > std::tie(b.score, b.left_length, b.right_length);
    });
    for (const Split& split : splits) {
      spec_.merges.emplace_back(tokens_[static_cast<size_t>(split.left)], tokens_[static_cast<size_t>(split.right)]);
    }
  }

  const GgufFile& file_;
  std::vector<std::string_view> tokens_;
  std::vector<int64_t> types_;
  TokenizerSpec spec_;
};

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_gguf(const formats::GgufFile& file) {
  return build_tokenizer(GgufTokenizer(file).read());
}

}  // namespace pacer::text
