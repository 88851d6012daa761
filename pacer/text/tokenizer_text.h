// Text on its way to tokens: UTF-8, and for every byte the code points of the caller's text it came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pacer::text {

// The byte where `text` stops being UTF-8 (overlong forms, surrogates and values above U+10FFFF are not), or npos.
size_t find_invalid_utf8(std::string_view text);

// Bytes of the code point that starts with `lead`; the text is known to be UTF-8.
inline uint32_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

struct CodePoint {
  char32_t value;
  uint32_t length;  // bytes
};
CodePoint decode_utf8(std::string_view text, size_t at);          // `at` is the first byte of a code point
CodePoint decode_utf8_before(std::string_view text, size_t end);  // the code point that ends at `end` > 0
void append_utf8(std::string& out, char32_t value);
size_t count_code_points(std::string_view text);

// Positions are 32 bits wide. Throws Error{data} for a text above 2 GiB, as given or as rewritten on the way.
void check_text_size(size_t bytes);

// [begin, end) in code points of the text given to Tokenizer::encode().
struct Origin {
  uint32_t begin;
  uint32_t end;
};

// One stretch of text between added tokens while it is normalised.
struct MappedText {
  std::string bytes;
  std::vector<Origin> origins;  // one per byte, or empty when nobody asks where tokens came from
  bool tracked = false;
  uint32_t base = 0;  // code point of the caller's text where this stretch starts

  // base: see above. Without `track` only the bytes are kept.
  void assign(std::string_view text, uint32_t base_code_point, bool track);
};

// Writes the next version of a MappedText from left to right. The rules for origins are those of the reference
// tokenizers: what replaces a character has that character's origin, what is inserted shares the origin of the byte
// before it.
class TextRewriter {
 public:
  explicit TextRewriter(MappedText& text);
  size_t position() const { return at_; }  // in the old text
  void keep_until(size_t end);             // copies the bytes up to `end`
  void drop_until(size_t end);             // leaves the bytes up to `end` out
  // change > 0: `value` is inserted. change <= 0: it replaces the next character and the -change characters after it.
  void put(char32_t value, int change);
  // Leaves [position, end) out and puts `content` in its place, with the origin of the last byte left out.
  void replace_until(size_t end, std::string_view content);
  void finish();  // keeps what is left and makes the new text the text

 private:
  MappedText& text_;
  std::string bytes_;
  std::vector<Origin> origins_;
  size_t at_ = 0;
};

// A part of a SplitText.
struct Piece {
  uint32_t begin;  // bytes
  uint32_t end;
  int32_t id;  // >= 0: an added token that was matched, no step touches it; < 0: text
};

// Text cut into pieces. Steps either cut finer or write the text anew.
struct SplitText {
  std::string_view bytes;       // the caller's text, or `storage`
  std::vector<Origin> origins;  // as in MappedText
  std::vector<Piece> pieces;    // in order, none empty
  bool tracked = false;
  std::string storage;

  // Where the next version is made; kept to save allocations.
  std::string next_storage;
  std::vector<Origin> next_origins;
  std::vector<Piece> next_pieces;

  std::string_view text_of(const Piece& piece) const { return bytes.substr(piece.begin, piece.end - piece.begin); }
  Origin origin_of(const Piece& piece) const { return {origins[piece.begin].begin, origins[piece.end - 1].end}; }
  void adopt_pieces() { pieces.swap(next_pieces); }
  void adopt_text();  // next_storage, next_origins and next_pieces become current
};

}  // namespace pacer::text
