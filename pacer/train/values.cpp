#include "pacer/train/values.h"

#include <charconv>
#include <cmath>
#include <string>

namespace pacer::train {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// Digits from `at` on, with single underscores between them; appends them to `out` and returns how many there were.
size_t take_digits(std::string_view text, size_t& at, std::string& out) {
  size_t count = 0;
  while (at < text.size()) {
    const bool joins = text[at] == '_' && count > 0 && at + 1 < text.size() && digit(text[at + 1]);
    if (joins) ++at;
    if (!digit(text[at])) break;
    out += text[at++];
    ++count;
  }
  return count;
}

// The text without underscores and leading plus, when it is a number of the grammar.
std::optional<std::string> clean(std::string_view text, bool& whole) {
  std::string out;
  size_t at = 0;
  if (at < text.size() && (text[at] == '+' || text[at] == '-')) {
    if (text[at] == '-') out += '-';
    ++at;
  }
  const size_t before = take_digits(text, at, out);
  size_t after = 0;
  whole = true;
  if (at < text.size() && text[at] == '.') {
    whole = false;
    if (before == 0) out += '0';
    out += text[at++];
    after = take_digits(text, at, out);
    if (after == 0) out += '0';
  }
  if (before + after == 0) return std::nullopt;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    whole = false;
    out += text[at++];
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) {
      if (text[at] == '-') out += '-';
      ++at;
    }
    if (take_digits(text, at, out) == 0) return std::nullopt;
  }
  if (at != text.size()) return std::nullopt;
  return out;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  bool whole = false;
  const auto cleaned = clean(text, whole);
  if (!cleaned) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(cleaned->data(), cleaned->data() + cleaned->size(), value);
  if (result.ec != std::errc() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_whole(std::string_view text) {
  bool whole = false;
  const auto cleaned = clean(text, whole);
  if (!cleaned) return std::nullopt;
  if (whole) {
    int64_t value = 0;
    const auto result = std::from_chars(cleaned->data(), cleaned->data() + cleaned->size(), value);
    if (result.ec != std::errc()) return std::nullopt;
    return value;
  }
  constexpr double kExact = 9007199254740992.0;  // 2^53, up to where an f64 holds every whole number
  const auto value = parse_number(text);
  if (!value || *value != std::floor(*value) || std::abs(*value) > kExact) return std::nullopt;
  return static_cast<int64_t>(*value);
}

}  // namespace pacer::train
