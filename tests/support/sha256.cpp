#include "tests/support/sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace pacer::test {
namespace {

// The first 32 bits of the fractional part of `root`, which is how the standard defines its constants.
uint32_t fraction_bits(long double root) { return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L); }

struct Constants {
  std::array<uint32_t, 64> round;
  std::array<uint32_t, 8> initial;
  Constants() {
    size_t count = 0;
    for (unsigned candidate = 2; count < 64; ++candidate) {
      bool prime = true;
      for (unsigned d = 2; d * d <= candidate; ++d) prime = prime && candidate % d != 0;
      if (!prime) continue;
      round[count] = fraction_bits(std::cbrt(static_cast<long double>(candidate)));
      if (count < 8) initial[count] = fraction_bits(std::sqrt(static_cast<long double>(candidate)));
      ++count;
    }
  }
};

void compress(std::array<uint32_t, 8>& state, const unsigned char* block, const std::array<uint32_t, 64>& k) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = 0;
    for (size_t byte = 0; byte < 4; ++byte) w[i] = (w[i] << 8) | block[4 * i + byte];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += add[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  static const Constants constants;
  std::array<uint32_t, 8> state = constants.initial;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t done = 0;
  for (; bytes.size() - done >= 64; done += 64) compress(state, data + done, constants.round);
  std::string tail(bytes.substr(done));
  tail.push_back(static_cast<char>(0x80));
  while (tail.size() % 64 != 56) tail.push_back(0);
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8) tail.push_back(static_cast<char>((bits >> shift) & 0xFF));
  for (size_t at = 0; at < tail.size(); at += 64) {
    compress(state, reinterpret_cast<const unsigned char*>(tail.data()) + at, constants.round);
  }
  std::string hex;
  for (const uint32_t word : state) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", word);
    hex += text;
  }
  return hex;
}

}  // namespace pacer::test
