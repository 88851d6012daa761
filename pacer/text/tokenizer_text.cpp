#include "pacer/text/tokenizer_text.h"

#include <cstring>

#include "pacer/base/error.h"

namespace pacer::text {
namespace {

bool continues(unsigned char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const size_t size = text.size();
  for (size_t i = 0; i < size;) {
    if (i + 8 <= size) {
      uint64_t word;
      std::memcpy(&word, bytes + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const unsigned char lead = bytes[i];
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = utf8_length(static_cast<char>(lead));
    if (lead < 0xC2 || lead > 0xF4 || size - i < length) return i;
    for (size_t k = 1; k < length; ++k) {
      if (!continues(bytes[i + k])) return i;
    }
    const unsigned char second = bytes[i + 1];
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F)) {
      return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

CodePoint decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + k])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F), 3};
  return {((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F), 4};
}

CodePoint decode_utf8_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && continues(static_cast<unsigned char>(text[start]))) --start;
  return decode_utf8(text, start);
}

void append_utf8(std::string& out, char32_t value) {
  const auto push = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xC0 | (value >> 6)), push(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    push(0xE0 | (value >> 12)), push(0x80 | ((value >> 6) & 0x3F)), push(0x80 | (value & 0x3F));
  } else {
    push(0xF0 | (value >> 18)), push(0x80 | ((value >> 12) & 0x3F));
    push(0x80 | ((value >> 6) & 0x3F)), push(0x80 | (value & 0x3F));
  }
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += !continues(static_cast<unsigned char>(c));
  return count;
}

void MappedText::assign(std::string_view text, uint32_t base_code_point, bool track) {
  bytes.assign(text);
  origins.clear();
  tracked = track;
  base = base_code_point;
  if (!track) return;
  origins.reserve(text.size());
  uint32_t code_point = base_code_point;
  for (size_t i = 0; i < text.size(); ++code_point) {
    const uint32_t length = utf8_length(text[i]);
    origins.insert(origins.end(), length, Origin{code_point, code_point + 1});
    i += length;
  }
}

TextRewriter::TextRewriter(MappedText& text) : text_(text) {
  bytes_.reserve(text.bytes.size() + text.bytes.size() / 8 + 16);
  if (text.tracked) origins_.reserve(bytes_.capacity());
}

void TextRewriter::keep_until(size_t end) {
  bytes_.append(text_.bytes, at_, end - at_);
  if (text_.tracked) {
    const auto first = text_.origins.begin();
    origins_.insert(origins_.end(), first + static_cast<std::ptrdiff_t>(at_), first + static_cast<std::ptrdiff_t>(end));
  }
  at_ = end;
}

void TextRewriter::drop_until(size_t end) { at_ = end; }

void TextRewriter::put(char32_t value, int change) {
  const size_t old_size = bytes_.size();
  append_utf8(bytes_, value);
  if (text_.tracked) {
    Origin origin{text_.base, text_.base};
    if (change <= 0 && at_ < text_.origins.size()) {
      origin = text_.origins[at_];
    } else if (at_ > 0) {
      origin = text_.origins[at_ - 1];
    }
    origins_.insert(origins_.end(), bytes_.size() - old_size, origin);
  }
  for (int removed = change; removed <= 0 && at_ < text_.bytes.size(); ++removed) {
    at_ += utf8_length(text_.bytes[at_]);
  }
}

void TextRewriter::replace_until(size_t end, std::string_view content) {
  bytes_.append(content);
  if (text_.tracked) {
    const Origin origin = end > 0 ? text_.origins[end - 1] : Origin{text_.base, text_.base};
    origins_.insert(origins_.end(), content.size(), origin);
  }
  at_ = end;
}

void TextRewriter::finish() {
  keep_until(text_.bytes.size());
  text_.bytes.swap(bytes_);
  text_.origins.swap(origins_);
}

void check_text_size(size_t bytes) {
  constexpr size_t kMost = (size_t{1} << 31) - 1;
  if (bytes > kMost) {
    throw Error(ErrorKind::data, "a text of " + std::to_string(bytes) + " bytes; at most 2 GiB are encoded at once",
                "split it into documents");
  }
}

void SplitText::adopt_text() {
  check_text_size(next_storage.size());
  storage.swap(next_storage);
  bytes = storage;
  if (tracked) origins.swap(next_origins);
  pieces.swap(next_pieces);
}

}  // namespace pacer::text
