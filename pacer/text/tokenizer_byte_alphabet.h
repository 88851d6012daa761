// The byte-level alphabet of GPT-2: every byte as one printable character, so that any text is a text of known
// characters.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace pacer::text {

// Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 and the following in order of their value.
class ByteAlphabet {
 public:
  ByteAlphabet();
  std::string_view text_of(unsigned char byte) const { return {utf8_[byte].data(), length_[byte]}; }
  int byte_of(char32_t c) const { return c < bytes_.size() ? bytes_[c] : -1; }  // -1: not a character of the alphabet

 private:
  std::array<std::array<char, 2>, 256> utf8_;
  std::array<uint8_t, 256> length_;
  std::array<int16_t, 0x144> bytes_;
};

const ByteAlphabet& byte_alphabet();

}  // namespace pacer::text
