#include "pacer/text/tokenizer_byte_alphabet.h"

#include <string>

#include "pacer/text/tokenizer_text.h"

namespace pacer::text {

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
    std::string text;
    append_utf8(text, c);
    const auto index = static_cast<size_t>(byte);
    length_[index] = static_cast<uint8_t>(text.size());
    text.resize(2);
    utf8_[index] = {text[0], text[1]};
    bytes_[c] = static_cast<int16_t>(byte);
  }
}

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace pacer::text
