// What the steps of a decoder have in common, and the steps that make text of bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "pacer/text/tokenizer_decoder.h"

namespace pacer::text {

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

// The bytes that the characters of the byte-level alphabet stand for; a token with any other character is taken as it
// is. What is not UTF-8 becomes U+FFFD, one for each longest start of a sequence (Unicode Standard, chapter 3.9).
std::unique_ptr<DecodeStep> make_byte_level_step(std::unique_ptr<DecodeStep> next);

// Runs of tokens "<0xHH>" become the text they spell, or one U+FFFD each when they spell none.
std::unique_ptr<DecodeStep> make_byte_fallback_step(std::unique_ptr<DecodeStep> next);

}  // namespace pacer::text
