#include "pacer/text/tokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {
namespace {

// Backtracking keeps one frame per repetition of a group; a text of several megabytes without a break needs this much.
constexpr size_t kJitStackBytes = size_t{64} << 20;

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  return pcre2_get_error_message(code, buffer, sizeof buffer) < 0 ? "error " + std::to_string(code)
                                                                  : reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct RegexScratch::Data {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{32} << 10, kJitStackBytes, nullptr);

  Data() {
    if (match == nullptr || context == nullptr || stack == nullptr) throw std::bad_alloc();
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Data() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;

void RegexScratch::begin_text(size_t bytes) {
  constexpr double kSeconds = 0.5, kSecondsPerByte = 2e-6;
  allowed_until_ = thread_cpu_seconds() + kSeconds + kSecondsPerByte * static_cast<double>(bytes);
}

void RegexScratch::check_time() {
  // The clock costs as much as a few searches, so it is asked now and then.
  constexpr uint32_t kEvery = 16;
  if (++searches_ % kEvery != 0 || allowed_until_ == 0 || thread_cpu_seconds() < allowed_until_) return;
  throw Error(ErrorKind::data, "the regular expressions of this tokenizer take too long for this text",
              "split the text into shorter parts; if it is short already, do not use this tokenizer");
}

struct Pattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.source_ = std::move(text);
  return pattern;
}

Pattern Pattern::regex(std::string_view oniguruma, const std::string& place) {
  const std::string translated = translate_regex(oniguruma, place);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);

  int error = 0;
  PCRE2_SIZE at = 0;
  auto code = std::make_shared<Code>();
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get());
  if (code->code == nullptr) {
    throw Error(ErrorKind::format,
                place + ": regular expression not understood: " + message_of(error) + " at byte " + std::to_string(at) +
                    " of \"" + translated + "\"",
                "Pacer runs these expressions with PCRE2; this one uses something it does not know");
  }
  // Where the processor or the system allows no generated code, matching is interpreted: slower, same matches.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);

  Pattern pattern;
  pattern.code_ = std::move(code);
  pattern.source_ = std::string(oniguruma);
  return pattern;
}

bool Pattern::search(std::string_view subject, size_t start, RegexScratch& scratch, Match& match) const {
  if (code_ == nullptr) {
    match.begin = subject.find(source_, start);
    match.end = match.begin + source_.size();
    return match.begin != std::string_view::npos;
  }
  if (scratch.data_ == nullptr) scratch.data_ = std::make_unique<RegexScratch::Data>();
  scratch.check_time();
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), start,
                                PCRE2_NO_UTF_CHECK, scratch.data_->match, scratch.data_->context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    throw Error(ErrorKind::data,
                "a text of " + std::to_string(subject.size()) + " bytes is too much for the expression \"" + source_ +
                    "\": " + message_of(found),
                "split the text into shorter parts");
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data_->match);
  match = {range[0], range[1]};
  return true;
}

size_t Pattern::next_code_point(std::string_view subject, size_t at) {
  return at < subject.size() ? at + utf8_length(subject[at]) : at + 1;
}

bool matches_word_character(char32_t c) {
  static const Pattern pattern = Pattern::regex("[\\w\\x{200C}\\x{200D}]", "built in");
  static thread_local RegexScratch scratch;
  std::string bytes;
  append_utf8(bytes, c);
  Match match;
  return pattern.search(bytes, 0, scratch, match);
}

}  // namespace pacer::text
