#include "pacer/text/normalizer.h"

#include <utf8proc.h>

#include <utility>
#include <vector>

#include "pacer/text/tokenizer_byte_alphabet.h"
#include "pacer/text/tokenizer_unicode.h"

namespace pacer::text {
namespace {

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(MappedText& text, RegexScratch& scratch) const override {
    for (const auto& part : parts_) part->apply(text, scratch);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

class Lowercase : public Normalizer {
 public:
  void apply(MappedText& text, RegexScratch&) const override {
    TextRewriter rewriter(text);
    for (size_t at = 0; at < text.bytes.size();) {
      const CodePoint c = decode_utf8(text.bytes, at);
      at += c.length;
      const auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value)));
      if (c.value == 0x130) {  // the one capital whose small form is two characters
        rewriter.put('i', 0);
        rewriter.put(0x307, 1);
      } else if (lower == c.value) {
        rewriter.keep_until(at);
      } else {
        rewriter.put(lower, 0);
      }
    }
    rewriter.finish();
  }
};

class StripAccents : public Normalizer {
 public:
  void apply(MappedText& text, RegexScratch&) const override {
    TextRewriter rewriter(text);
    for (size_t at = 0; at < text.bytes.size();) {
      const CodePoint c = decode_utf8(text.bytes, at);
      at += c.length;
      if (is_mark(c.value)) {
        rewriter.drop_until(at);
      } else {
        rewriter.keep_until(at);
      }
    }
    rewriter.finish();
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(MappedText& text, RegexScratch&) const override {
    size_t begin = 0, end = text.bytes.size();
    while (left_ && begin < end) {
      const CodePoint c = decode_utf8(text.bytes, begin);
      if (!is_white_space(c.value)) break;
      begin += c.length;
    }
    while (right_ && begin < end) {
      const CodePoint c = decode_utf8_before(text.bytes, end);
      if (!is_white_space(c.value)) break;
      end -= c.length;
    }
    if (begin == 0 && end == text.bytes.size()) return;
    TextRewriter rewriter(text);
    rewriter.drop_until(begin);
    rewriter.keep_until(end);
    rewriter.drop_until(text.bytes.size());
    rewriter.finish();
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(MappedText& text, RegexScratch&) const override {
    if (text.bytes.empty()) return;
    text.bytes.insert(0, prefix_);
    if (text.tracked) text.origins.insert(text.origins.begin(), prefix_.size(), Origin(text.origins.front()));
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(MappedText& text, RegexScratch& scratch) const override {
    TextRewriter rewriter(text);
    pattern_.for_each_match(text.bytes, scratch, [&](const Match& match) {
      rewriter.keep_until(match.begin);
      rewriter.replace_until(match.end, content_);
    });
    rewriter.finish();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Bytes as the 256 printable characters of the byte-level alphabet.
class ByteLevel : public Normalizer {
 public:
  void apply(MappedText& text, RegexScratch&) const override {
    std::string bytes;
    std::vector<Origin> origins;
    for (size_t i = 0; i < text.bytes.size(); ++i) {
      const std::string_view mapped = byte_alphabet().text_of(static_cast<unsigned char>(text.bytes[i]));
      bytes += mapped;
      if (text.tracked) origins.insert(origins.end(), mapped.size(), text.origins[i]);
    }
    text.bytes.swap(bytes);
    text.origins.swap(origins);
  }
};

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const Component& config) {
  if (config.is_null()) return nullptr;
  const std::string type = config.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<const Normalizer>> parts;
    for (const Component& part : config.list("normalizers")) {
      if (part.is_null()) part.refuse("a normalizer expected, found null");
      parts.push_back(make_normalizer(part));
    }
    return std::make_unique<Sequence>(std::move(parts));
  }
  if (type == "NFC") return make_unicode_normalizer(NormalizationForm::nfc);
  if (type == "NFD") return make_unicode_normalizer(NormalizationForm::nfd);
  if (type == "NFKC") return make_unicode_normalizer(NormalizationForm::nfkc);
  if (type == "NFKD") return make_unicode_normalizer(NormalizationForm::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") return std::make_unique<Strip>(config.flag("strip_left"), config.flag("strip_right"));
  if (type == "Prepend") return std::make_unique<Prepend>(config.text("prepend"));
  if (type == "Replace") return std::make_unique<Replace>(make_pattern(config.at("pattern")), config.text("content"));
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  config.refuse_type({"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend",
                      "Replace", "ByteLevel"});
}

}  // namespace pacer::text
