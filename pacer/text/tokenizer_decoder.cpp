#include "pacer/text/tokenizer_decoder.h"

#include <optional>
#include <utility>

#include "pacer/text/tokenizer_decode_steps.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {
namespace {

class Output : public DecodeStep {
 public:
  explicit Output(std::string& out) : out_(out) {}
  void part(std::string_view text, bool, bool) override { out_ += text; }
  void finish() override {}

 private:
  std::string& out_;
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
    makers_.push_back(make_byte_level_step);
  } else if (type == "ByteFallback") {
    makers_.push_back(make_byte_fallback_step);
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
