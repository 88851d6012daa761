#include "pacer/text/jinja/text_tools.h"

#include <algorithm>

#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

size_t previous(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool is_line_end(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::vector<std::string> split_spaces(const std::string& text, int64_t limit, bool from_right) {
  std::vector<std::string> out;
  if (!from_right) {
    size_t at = 0;
    for (;;) {
      size_t next = at;
      while (at < text.size() && is_space(decode_at(text, next))) at = next;
      if (at == text.size()) return out;
      if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
        out.push_back(strip(text.substr(at), nullptr, Side::right));
        return out;
      }
      const size_t start = at;
      next = at;
      while (at < text.size() && !is_space(decode_at(text, next))) at = next;
      out.push_back(text.substr(start, at - start));
    }
  }
  size_t end = text.size();
  for (;;) {
    while (end > 0) {
      size_t start = previous(text, end), next = start;
      if (!is_space(decode_at(text, next))) break;
      end = start;
    }
    if (end == 0) break;
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(strip(text.substr(0, end), nullptr, Side::left));
      break;
    }
    size_t start = end;
    while (start > 0) {
      size_t before = previous(text, start), next = before;
      if (is_space(decode_at(text, next))) break;
      start = before;
    }
    out.push_back(text.substr(start, end - start));
    end = start;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

std::string strip(const std::string& text, const std::string* set, Side side) {
  const std::u32string characters = set != nullptr ? to_code_points(*set) : std::u32string();
  const auto goes = [&](char32_t c) {
    return set != nullptr ? characters.find(c) != std::u32string::npos : is_space(c);
  };
  size_t begin = 0, end = text.size();
  if (side != Side::right) {
    while (begin < end) {
      size_t next = begin;
      if (!goes(decode_at(text, next))) break;
      begin = next;
    }
  }
  if (side != Side::left) {
    while (end > begin) {
      const size_t start = previous(text, end);
      size_t next = start;
      if (!goes(decode_at(text, next))) break;
      end = start;
    }
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string> split(const std::string& text, const std::string* separator, int64_t limit, bool from_right) {
  if (separator == nullptr) return split_spaces(text, limit, from_right);
  if (separator->empty()) value_error("empty separator");
  std::vector<std::string> out;
  if (!from_right) {
    size_t start = 0;
    while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
      const size_t found = text.find(*separator, start);
      if (found == std::string::npos) break;
      out.push_back(text.substr(start, found - start));
      start = found + separator->size();
    }
    out.push_back(text.substr(start));
    return out;
  }
  size_t end = text.size();
  while ((limit < 0 || static_cast<int64_t>(out.size()) < limit) && end >= separator->size()) {
    const size_t found = text.rfind(*separator, end - separator->size());
    if (found == std::string::npos) break;
    out.push_back(text.substr(found + separator->size(), end - found - separator->size()));
    end = found;
  }
  out.push_back(text.substr(0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> split_lines(const std::string& text, bool keep_ends) {
  std::vector<std::string> out;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = decode_at(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    out.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) out.push_back(text.substr(start));
  return out;
}

std::string replace(Context& context, const std::string& text, const std::string& from, const std::string& to,
                    int64_t count) {
  std::string out;
  int64_t done = 0;
  const auto more = [&] { return count < 0 || done < count; };
  const auto put = [&](std::string_view piece) {
    out += piece;
    if (out.size() > context.limits().bytes) context.charge(out.size());
  };
  if (from.empty()) {
    for (size_t at = 0; at <= text.size();) {
      if (more()) {
        put(to);
        ++done;
      }
      if (at == text.size()) break;
      const size_t start = at;
      decode_at(text, at);
      put(std::string_view(text).substr(start, at - start));
    }
  } else {
    size_t start = 0;
    while (more()) {
      const size_t found = text.find(from, start);
      if (found == std::string::npos) break;
      put(std::string_view(text).substr(start, found - start));
      put(to);
      start = found + from.size();
      ++done;
    }
    put(std::string_view(text).substr(start));
  }
  context.charge(out.size());
  return out;
}

std::string center(Context& context, const std::string& text, int64_t width, const std::string& fill) {
  const int64_t missing = width - code_points(text);
  if (missing <= 0) return text;
  if (static_cast<uint64_t>(missing) > context.limits().bytes) context.charge(context.limits().bytes + 1);
  context.charge(static_cast<uint64_t>(missing) * fill.size() + text.size());
  const int64_t left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace pacer::text::jinja
