#include "pacer/text/tokenizer_decoder.h"

#include <optional>
#include <utility>

#include "pacer/text/tokenizer_byte_alphabet.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

class Output : public DecodeStep {
 public:
  explicit Output(std::string& out) : out_(out) {}
  void part(std::string_view text, bool, bool) override { out_ += text; }
  void finish() override {}

 private:
  std::string& out_;
};

class ChainedStep : public DecodeStep {
 public:
  explicit ChainedStep(std::unique_ptr<DecodeStep> next) : next_(std::move(next)) {}
  void finish() override {
    flush();
    next_->finish();
  }

 protected:
  virtual void flush() {}
  DecodeStep& next() { return *next_; }

 private:
  std::unique_ptr<DecodeStep> next_;
};

// For steps that look at a token as a whole.
class WholeTokenStep : public ChainedStep {
 public:
  using ChainedStep::ChainedStep;
  void part(std::string_view text, bool begins, bool ends) override {
    if (begins && ends) return token(text);
    if (begins) pending_.clear();
    pending_ += text;
    if (ends) token(pending_);
  }

 protected:
  virtual void token(std::string_view text) = 0;
  void emit(std::string_view text) { next().part(text, true, true); }

 private:
  std::string pending_;
};

// Everything becomes one token, which is handed on in parts.
class FusingStep : public ChainedStep {
 public:
  using ChainedStep::ChainedStep;

 protected:
  void emit(std::string_view text) {
    if (text.empty()) return;
    next().part(text, !std::exchange(begun_, true), false);
  }
  void flush() override {
    if (begun_) next().part("", false, true);
  }

 private:
  bool begun_ = false;
};

class Fuse : public FusingStep {
 public:
  using FusingStep::FusingStep;
  void part(std::string_view text, bool, bool) override { emit(text); }
};

// Without a decoder the reference joins token strings by spaces.
class JoinBySpaces : public WholeTokenStep {
 public:
  using WholeTokenStep::WholeTokenStep;
  void token(std::string_view text) override {
    if (std::exchange(begun_, true)) emit(" ");
    emit(text);
  }

 private:
  bool begun_ = false;
};

// The bytes that the characters of the byte-level alphabet stand for; a token with any other character is taken as it
// is. What is not UTF-8 becomes U+FFFD, one for each longest start of a sequence (Unicode Standard, chapter 3.9).
class ByteLevel : public FusingStep {
 public:
  using FusingStep::FusingStep;
  void part(std::string_view text, bool begins, bool ends) override {
    if (begins && ends) return token(text);
    if (begins) pending_.clear();
    pending_ += text;
    if (ends) token(pending_);
  }

 protected:
  void flush() override {
    emit_valid(/*all=*/true);
    FusingStep::flush();
  }

 private:
  void token(std::string_view text) {
    const size_t before = bytes_.size();
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = decode_utf8(text, at);
      const int byte = byte_alphabet().byte_of(c.value);
      if (byte < 0) {
        bytes_.resize(before);
        bytes_ += text;
        break;
      }
      bytes_.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
      at += c.length;
    }
    emit_valid(/*all=*/false);
  }

  // Bytes of the longest start of a sequence at `at`, and whether it is a whole sequence.
  size_t sequence_at(size_t at, bool& whole) const {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes_[i]); };
    const unsigned char lead = byte(at);
    whole = lead < 0x80;
    if (lead < 0xC2 || lead > 0xF4) return 1;
    const size_t length = utf8_length(static_cast<char>(lead));
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    size_t k = 1;
    while (k < length && at + k < bytes_.size() && byte(at + k) >= (k == 1 ? low : 0x80) &&
           byte(at + k) <= (k == 1 ? high : 0xBF)) {
      ++k;
    }
    whole = k == length;
    return k;
  }

  void emit_valid(bool all) {
    size_t done = 0;
    while (done < bytes_.size()) {
      size_t valid = done, length = 0;
      bool whole = true;
      while (valid < bytes_.size() && (length = sequence_at(valid, whole), whole)) valid += length;
      emit(std::string_view(bytes_).substr(done, valid - done));
      done = valid;
      if (done == bytes_.size()) break;
      if (!all && done + length == bytes_.size() && static_cast<unsigned char>(bytes_[done]) >= 0xC2 &&
          static_cast<unsigned char>(bytes_[done]) <= 0xF4) {
        break;  // the rest may still come
      }
      emit(kReplacement);
      done += length;
    }
    bytes_.erase(0, done);
  }

  std::string bytes_, pending_;
};

// Runs of tokens "<0xHH>" become the text they spell, or one U+FFFD each when they spell none.
class ByteFallback : public WholeTokenStep {
 public:
  using WholeTokenStep::WholeTokenStep;
  void token(std::string_view text) override {
    if (const auto byte = byte_of(text)) {
      bytes_.push_back(*byte);
      return;
    }
    flush();
    emit(text);
  }

 protected:
  void flush() override {
    if (bytes_.empty()) return;
    if (find_invalid_utf8(bytes_) == std::string_view::npos) {
      emit(bytes_);
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) emit(kReplacement);
    }
    bytes_.clear();
  }

 private:
  static std::optional<char> byte_of(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
    int value = 0;
    for (const char c : text.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      value = value * 16 + digit;
    }
    return static_cast<char>(static_cast<unsigned char>(value));
  }
  std::string bytes_;
};

class Replace : public WholeTokenStep {
 public:
  Replace(std::unique_ptr<DecodeStep> next, Pattern pattern, std::string content)
      : WholeTokenStep(std::move(next)), pattern_(std::move(pattern)), content_(std::move(content)) {}
  void token(std::string_view text) override {
    std::string result;
    size_t done = 0;
    pattern_.for_each_match(text, scratch_, [&](const Match& match) {
      result += text.substr(done, match.begin - done);
      result += content_;
      done = match.end;
    });
    emit(result.append(text.substr(done)));
  }

 private:
  Pattern pattern_;
  std::string content_;
  RegexScratch scratch_;
};

// Takes up to `start` characters `content` from the beginning of each token and up to `stop` from its end.
class Strip : public ChainedStep {
 public:
  Strip(std::unique_ptr<DecodeStep> next, char32_t content, size_t start, size_t stop)
      : ChainedStep(std::move(next)), start_(start), stop_(stop) {
    append_utf8(content_, content);
  }
  void part(std::string_view text, bool begins, bool ends) override {
    if (begins) left_ = start_, held_ = 0;
    while (left_ > 0 && text.starts_with(content_)) text.remove_prefix(content_.size()), --left_;
    if (!text.empty()) left_ = 0;
    // Characters that may turn out to be the end wait.
    size_t tail = 0;
    std::string_view body = text;
    while (body.ends_with(content_)) body.remove_suffix(content_.size()), ++tail;
    std::string out;
    if (body.empty()) {
      held_ += tail;
    } else {
      for (; held_ > 0; --held_) out += content_;
      out += body;
      held_ = tail;
    }
    for (; held_ > stop_; --held_) out += content_;
    next().part(out, begins, ends);
  }

 private:
  std::string content_;
  size_t start_, stop_;
  size_t left_ = 0;  // that may still be taken from the beginning
  size_t held_ = 0;
};

// The visible space back to a space; the first token loses it when the tokenizer had put it there.
class Metaspace : public WholeTokenStep {
 public:
  Metaspace(std::unique_ptr<DecodeStep> next, std::string replacement, bool prepended)
      : WholeTokenStep(std::move(next)), replacement_(std::move(replacement)), drop_(prepended) {}
  void token(std::string_view text) override {
    std::string result;
    for (size_t at = 0; at < text.size();) {
      if (text.substr(at).starts_with(replacement_)) {
        if (!drop_) result += ' ';
        at += replacement_.size();
      } else {
        result += text[at++];
      }
    }
    drop_ = false;
    emit(result);
  }

 private:
  std::string replacement_;
  bool drop_;
};

// The end-of-word mark becomes a space, at the end of the text nothing.
class BpeSuffix : public WholeTokenStep {
 public:
  BpeSuffix(std::unique_ptr<DecodeStep> next, std::string suffix)
      : WholeTokenStep(std::move(next)), suffix_(std::move(suffix)) {}
  void token(std::string_view text) override {
    if (waiting_) emit(with(" "));
    waiting_ = std::string(text);
  }

 protected:
  void flush() override {
    if (waiting_) emit(with(""));
    waiting_.reset();
  }

 private:
  std::string with(std::string_view replacement) const {
    std::string result;
    for (size_t at = 0; at < waiting_->size();) {
      if (waiting_->compare(at, suffix_.size(), suffix_) == 0) {
        result += replacement;
        at += suffix_.size();
      } else {
        result += (*waiting_)[at++];
      }
    }
    return result;
  }
  std::string suffix_;
  std::optional<std::string> waiting_;
};

size_t small_count(const Component& config, const std::string& key) {
  const int64_t value = config.integer(key);
  if (value < 0 || value > 1'000'000) config.at(key).refuse(std::to_string(value) + "; allowed: 0 to 1000000");
  return static_cast<size_t>(value);
}

}  // namespace

Decoder::Decoder(const Component& config) {
  if (config.is_null()) {
    makers_.push_back([](auto next) { return std::make_unique<JoinBySpaces>(std::move(next)); });
  } else {
    add(config);
  }
}

void Decoder::add(const Component& config) {
  const std::string type = config.type();
  if (type == "Sequence") {
    for (const Component& part : config.list("decoders")) {
      if (part.is_null()) part.refuse("a decoder expected, found null");
      add(part);
    }
  } else if (type == "ByteLevel") {
    makers_.push_back([](auto next) { return std::make_unique<ByteLevel>(std::move(next)); });
  } else if (type == "ByteFallback") {
    makers_.push_back([](auto next) { return std::make_unique<ByteFallback>(std::move(next)); });
  } else if (type == "Fuse") {
    makers_.push_back([](auto next) { return std::make_unique<Fuse>(std::move(next)); });
  } else if (type == "Replace") {
    makers_.push_back([pattern = make_pattern(config.at("pattern")), content = config.text("content")](auto next) {
      return std::make_unique<Replace>(std::move(next), pattern, content);
    });
  } else if (type == "Strip") {
    const char32_t content = config.character("content");
    const size_t start = small_count(config, "start"), stop = small_count(config, "stop");
    makers_.push_back([=](auto next) { return std::make_unique<Strip>(std::move(next), content, start, stop); });
  } else if (type == "Metaspace") {
    std::string replacement;
    append_utf8(replacement, config.character("replacement"));
    const bool prepended = config.has("prepend_scheme") ? config.text("prepend_scheme") != "never"
                                                        : config.flag_or("add_prefix_space", true);
    makers_.push_back([=](auto next) { return std::make_unique<Metaspace>(std::move(next), replacement, prepended); });
  } else if (type == "BPEDecoder") {
    const std::string suffix = config.text_or("suffix", "</w>");
    if (suffix.empty()) config.refuse("an empty suffix");
    makers_.push_back([=](auto next) { return std::make_unique<BpeSuffix>(std::move(next), suffix); });
  } else {
    config.refuse_type(
        {"Sequence", "ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace", "BPEDecoder"});
  }
}

std::unique_ptr<DecodeStep> Decoder::start(std::string& out) const {
  std::unique_ptr<DecodeStep> step = std::make_unique<Output>(out);
  for (auto maker = makers_.rbegin(); maker != makers_.rend(); ++maker) step = (*maker)(std::move(step));
  return step;
}

}  // namespace pacer::text
