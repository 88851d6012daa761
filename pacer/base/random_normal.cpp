// Normal numbers in bulk: sixteen lanes of Philox blocks and Box-Muller in f32, written so that a compiler makes vector
// code of every loop. Compiled without contraction of products and sums (room.cmake), so that every machine draws the
// same bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "pacer/base/random.h"

namespace pacer {
namespace {

constexpr size_t kLanes = 16;
using Words = uint32_t[4][kLanes];
using Floats = float[kLanes];

void philox(Words& c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t first = uint64_t{0xD2511F53u} * c[0][i];
      const uint64_t second = uint64_t{0xCD9E8D57u} * c[2][i];
      c[0][i] = static_cast<uint32_t>(second >> 32) ^ c[1][i] ^ key[0];
      c[2][i] = static_cast<uint32_t>(first >> 32) ^ c[3][i] ^ key[1];
      c[1][i] = static_cast<uint32_t>(second);
      c[3][i] = static_cast<uint32_t>(first);
    }
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

// sqrt(-2 ln u) for u = (word + 1/2) / 2^32, never 0. With u = m 2^e and m in [sqrt(1/2), sqrt(2)), ln m is the series
// of 2 artanh((m - 1) / (m + 1)), whose first term left out is below 1e-9.
float radius(uint32_t word) {
  const float u = (static_cast<float>(static_cast<int32_t>(word >> 8)) + 0.5f) * 0x1p-24f;
  const auto bits = std::bit_cast<int32_t>(u);
  const int32_t exponent = (bits - 0x3F3504F3) >> 23;  // 0x3F3504F3 is sqrt(1/2)
  const float m = std::bit_cast<float>(bits - exponent * (1 << 23));
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = s * s;
  const float tail = z * (1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9))));
  const float ln = static_cast<float>(exponent) * std::numbers::ln2_v<float> + 2.0f * (s + s * tail);
  return std::sqrt(std::max(-2.0f * ln, 0.0f));
}

// cos and sin of 2 pi v for v = word / 2^32: the quarter turn comes from the two highest bits, the rest is within an
// eighth of a turn of it, where the series to the ninth power are exact to f32.
void turn(uint32_t word, float& cosine, float& sine) {
  const uint32_t quarter = (word + 0x20000000u) >> 30;
  const auto rest = static_cast<int32_t>(word - (quarter << 30));
  const float x = static_cast<float>(rest) * (2 * std::numbers::pi_v<float> * 0x1p-32f);
  const float z = x * x;
  const float s = x * (1 + z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880)))));
  const float c = 1 + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320))));
  const bool odd = (quarter & 1u) != 0;
  const float along = odd ? s : c, across = odd ? c : s;
  cosine = quarter == 1 || quarter == 2 ? -along : along;
  sine = quarter >= 2 ? -across : across;
}

}  // namespace

void RandomStream::fill_normal(float* out, size_t count) const {
  const uint64_t place = block_place();
  for (size_t begin = 0; begin < count; begin += 4 * kLanes) {
    Words words;
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t index = begin / 4 + i;
      words[0][i] = static_cast<uint32_t>(index);
      words[1][i] = static_cast<uint32_t>(index >> 32);
      words[2][i] = static_cast<uint32_t>(place);
      words[3][i] = static_cast<uint32_t>(place >> 32);
    }
    philox(words, key_);
    Floats drawn[4];
    for (size_t pair = 0; pair < 4; pair += 2) {
      for (size_t i = 0; i < kLanes; ++i) {
        const float r = radius(words[pair][i]);
        float cosine, sine;
        turn(words[pair + 1][i], cosine, sine);
        drawn[pair][i] = r * cosine;
        drawn[pair + 1][i] = r * sine;
      }
    }
    const size_t here = std::min(4 * kLanes, count - begin);
    for (size_t k = 0; k < here; ++k) out[begin + k] = drawn[k % 4][k / 4];
  }
}

}  // namespace pacer
