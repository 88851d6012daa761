// The whole way from text to ids and back, as one tokenizer.json describes it.
#include <memory>
#include <utility>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/text/bpe.h"
#include "pacer/text/normalizer.h"
#include "pacer/text/pretokenizer.h"
#include "pacer/text/tokenizer.h"
#include "pacer/text/tokenizer_added.h"
#include "pacer/text/tokenizer_decoder.h"
#include "pacer/text/tokenizer_json.h"
#include "pacer/text/tokenizer_post.h"
#include "pacer/text/tokenizer_scratch.h"

namespace pacer::text {
namespace {

class PipelineTokenizer;

class PipelineDecoding : public TokenDecoding {
 public:
  PipelineDecoding(const PipelineTokenizer& tokenizer, const Decoder& decoder, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens), step_(decoder.start(text_)) {}
  std::string push(int64_t id) override {
    feed(id);
    return std::exchange(text_, {});
  }
  std::string finish() override {
    step_->finish();
    return std::exchange(text_, {});
  }
  void feed(int64_t id);

 private:
  const PipelineTokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::string text_;
  std::unique_ptr<DecodeStep> step_;
};

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerSpec spec);

  Encoding encode(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens) const override {
    PipelineDecoding decoding(*this, decoder_, skip_special_tokens);
    for (const int64_t id : ids) decoding.feed(id);
    return decoding.finish();
  }
  std::unique_ptr<TokenDecoding> start_decoding(bool skip_special_tokens) const override {
    return std::make_unique<PipelineDecoding>(*this, decoder_, skip_special_tokens);
  }

  int64_t vocab_size() const override { return size_; }
  std::optional<int64_t> token_to_id(std::string_view token) const override {
    if (const AddedToken* added = added_.find(token)) return added->id;
    const int32_t id = model_->vocabulary().id_of(token);
    return id < 0 ? std::nullopt : std::optional<int64_t>(id);
  }
  std::string id_to_token(int64_t id) const override { return std::string(token_text(id)); }
  bool is_special(int64_t id) const override {
    const AddedToken* added = added_.find(id);
    return added != nullptr && added->special;
  }
  std::vector<std::pair<std::string, int64_t>> special_tokens() const override {
    std::vector<std::pair<std::string, int64_t>> tokens;
    for (const auto& [id, token] : added_.by_id()) {
      if (token.special) tokens.emplace_back(token.content, id);
    }
    return tokens;
  }
  std::string to_json() const override { return write_tokenizer_json(frame_, model_->vocabulary(), model_->merges()); }

  std::string_view token_text(int64_t id) const;

 private:
  void cut_at_added_tokens(std::string_view text, bool tracked, Scratch& scratch) const;
  void add_normalized(std::string_view text, uint32_t base, bool tracked, Scratch& scratch) const;

  OrderedJson frame_;
  std::string place_;
  std::unique_ptr<const Normalizer> normalizer_;
  std::unique_ptr<const PreTokenizer> pretokenizer_;
  std::unique_ptr<const BpeModel> model_;
  PostProcessor post_processor_;
  Decoder decoder_;
  AddedTokens added_;
  int64_t size_ = 0;
  mutable ScratchPool pool_;
};

void PipelineDecoding::feed(int64_t id) {
  const std::string_view token = tokenizer_.token_text(id);
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return;
  step_->part(token, /*begins=*/true, /*ends=*/true);
}

std::unique_ptr<const BpeModel> make_model(const Component& root, TokenizerSpec& spec) {
  const Component config = root.at("model");
  // Files older than the key have merges only in this kind of model.
  const std::string type = config.text_or("type", spec.merges.empty() ? "" : "BPE");
  if (type != "BPE") {
    throw Error(ErrorKind::format, config.path() + ".type: \"" + type + "\" is not supported; supported: BPE",
                "Unigram, WordPiece and WordLevel tokenizers cannot be used with Pacer yet");
  }
  if (config.has("dropout") && config.at("dropout").json() != 0) {
    config.at("dropout").refuse("must be null: the same text would get different tokens every time");
  }
  BpeOptions options;
  options.unknown_token = config.text_or("unk_token", "");
  options.fuse_unknown = config.flag_or("fuse_unk", false);
  options.byte_fallback = config.flag_or("byte_fallback", false);
  options.ignore_merges = config.flag_or("ignore_merges", false);
  options.continuing_subword_prefix = config.text_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = config.text_or("end_of_word_suffix", "");
  return std::make_unique<BpeModel>(std::move(spec.vocabulary), spec.merges, std::move(options), config.path());
}

// Steps run one after the other over every text, and each expression is compiled: real files have a few hundred bytes.
OrderedJson bounded(OrderedJson frame, const std::string& place) {
  constexpr size_t kMostBytes = size_t{16} << 10;
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    if (!frame.contains(part)) continue;
    const size_t bytes = frame.at(part).dump(-1, ' ', false, OrderedJson::error_handler_t::replace).size();
    if (bytes > kMostBytes) {
      throw Error(ErrorKind::format, place + ": " + part + " of " + std::to_string(bytes) + " bytes, at most " +
                                         std::to_string(kMostBytes) + " are read");
    }
  }
  return frame;
}

PipelineTokenizer::PipelineTokenizer(TokenizerSpec spec)
    : frame_(bounded(std::move(spec.frame), spec.place)),
      place_(spec.place),
      normalizer_(make_normalizer(Component::root(frame_, place_).at_or_null("normalizer"))),
      pretokenizer_(make_pretokenizer(Component::root(frame_, place_).at_or_null("pre_tokenizer"))),
      post_processor_(Component::root(frame_, place_).at_or_null("post_processor")),
      decoder_(Component::root(frame_, place_).at_or_null("decoder")) {
  model_ = make_model(Component::root(frame_, place_), spec);
  size_ = model_->vocabulary().size();
  std::vector<AddedToken> tokens = read_added_tokens(Component::root(frame_, place_));
  for (const AddedToken& token : tokens) {
    const int32_t known = model_->vocabulary().id_of(token.content);
    const bool taken = model_->vocabulary().has(token.id) && known != token.id;
    if (taken || (known >= 0 && known != token.id)) {
      throw Error(ErrorKind::format,
                  place_ + ": added_tokens: \"" + token.content + "\" has id " + std::to_string(token.id) +
                      ", in the vocabulary " +
                      (known >= 0 ? "it has id " + std::to_string(known) : "that id is another token"),
                  "added tokens and vocabulary belong to different tokenizers");
    }
    size_ = std::max<int64_t>(size_, token.id + 1);
  }
  post_processor_.require_ids_below(size_, place_);
  added_ = AddedTokens(std::move(tokens), normalizer_.get());
}

std::string_view PipelineTokenizer::token_text(int64_t id) const {
  if (const AddedToken* added = added_.find(id)) return added->content;
  if (!model_->vocabulary().has(id)) {
    throw Error(ErrorKind::data,
                "token id " + std::to_string(id) + " is not one of the " + std::to_string(size_) +
                    " of the tokenizer " + place_,
                "the ids were made with another tokenizer, or by a model whose vocabulary is padded");
  }
  return model_->vocabulary().text_of(static_cast<int32_t>(id));
}

// Normalises a stretch between added tokens and adds it to the text that is to be cut.
void PipelineTokenizer::add_normalized(std::string_view text, uint32_t base, bool tracked, Scratch& scratch) const {
  MappedText& mapped = scratch.mapped;
  mapped.assign(text, base, tracked);
  if (normalizer_ != nullptr) normalizer_->apply(mapped, scratch.regex);
  SplitText& split = scratch.split;
  const auto start = static_cast<uint32_t>(split.storage.size());
  split.storage += mapped.bytes;
  check_text_size(split.storage.size());
  if (tracked) split.origins.insert(split.origins.end(), mapped.origins.begin(), mapped.origins.end());
  scratch.inner_matches.clear();
  added_.normalized().split(mapped.bytes, scratch.inner_matches);
  for (const AddedMatch& match : scratch.inner_matches) {
    split.pieces.push_back({start + match.begin, start + match.end, match.id});
  }
}

void PipelineTokenizer::cut_at_added_tokens(std::string_view text, bool tracked, Scratch& scratch) const {
  SplitText& split = scratch.split;
  split.pieces.clear();
  split.origins.clear();
  split.storage.clear();
  split.tracked = tracked;
  scratch.raw_matches.clear();
  added_.raw().split(text, scratch.raw_matches);
  if (normalizer_ == nullptr && added_.normalized().empty()) {
    split.bytes = text;
    for (const AddedMatch& match : scratch.raw_matches) split.pieces.push_back({match.begin, match.end, match.id});
    if (tracked) {
      scratch.mapped.assign(text, 0, true);
      split.origins.swap(scratch.mapped.origins);
    }
    return;
  }
  uint32_t code_points = 0;
  for (const AddedMatch& match : scratch.raw_matches) {
    const std::string_view part = text.substr(match.begin, match.end - match.begin);
    if (match.id < 0) {
      add_normalized(part, code_points, tracked, scratch);
    } else {
      const auto start = static_cast<uint32_t>(split.storage.size());
      split.storage += part;
      if (tracked) {
        scratch.mapped.assign(part, code_points, true);
        split.origins.insert(split.origins.end(), scratch.mapped.origins.begin(), scratch.mapped.origins.end());
      }
      split.pieces.push_back({start, static_cast<uint32_t>(split.storage.size()), match.id});
    }
    if (tracked) code_points += static_cast<uint32_t>(count_code_points(part));
  }
  split.bytes = split.storage;
}

Encoding PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  check_text_size(text.size());
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    throw Error(ErrorKind::data, "the text is not valid UTF-8 at byte " + std::to_string(bad),
                "convert it to UTF-8 first; nothing is replaced silently");
  }
  ScratchPool::Lease lease(pool_);
  Scratch& scratch = *lease;
  scratch.regex.begin_text(text.size());
  const bool needs_origins = pretokenizer_ != nullptr && pretokenizer_->needs_origins();
  cut_at_added_tokens(text, options.offsets || needs_origins, scratch);
  if (pretokenizer_ != nullptr) pretokenizer_->apply(scratch.split, scratch.regex);

  const SplitText& split = scratch.split;
  const bool spaces = options.offsets && post_processor_.trims_offsets();
  Encoding encoding;
  encoding.ids.reserve(text.size() / 4 + 8);
  scratch.spaces.clear();
  for (const Piece& piece : split.pieces) {
    if (piece.id >= 0) {
      encoding.ids.push_back(piece.id);
      if (options.offsets) {
        const Origin origin = split.origin_of(piece);
        encoding.offsets.emplace_back(origin.begin, origin.end);
      }
      if (spaces) scratch.spaces.push_back(count_spaces(split.text_of(piece)));
      continue;
    }
    scratch.tokens.clear();
    model_->encode(split.text_of(piece), scratch.bpe, scratch.tokens);
    uint32_t at = piece.begin;
    for (const Token& token : scratch.tokens) {
      encoding.ids.push_back(token.id);
      if (!options.offsets) continue;
      encoding.offsets.emplace_back(split.origins[at].begin, split.origins[at + token.length - 1].end);
      at += token.length;
      if (spaces) scratch.spaces.push_back(count_spaces(token_text(token.id)));
    }
  }
  post_processor_.apply(encoding, scratch.spaces, options);
  return encoding;
}

}  // namespace

std::shared_ptr<const Tokenizer> build_tokenizer(TokenizerSpec spec) {
  return std::make_shared<PipelineTokenizer>(std::move(spec));
}

}  // namespace pacer::text
