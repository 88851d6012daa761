#include <optional>
#include <utility>

#include "pacer/text/tokenizer_byte_alphabet.h"
#include "pacer/text/tokenizer_decode_steps.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

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

}  // namespace

std::unique_ptr<DecodeStep> make_byte_level_step(std::unique_ptr<DecodeStep> next) {
  return std::make_unique<ByteLevel>(std::move(next));
}

std::unique_ptr<DecodeStep> make_byte_fallback_step(std::unique_ptr<DecodeStep> next) {
  return std::make_unique<ByteFallback>(std::move(next));
}

}  // namespace pacer::text
