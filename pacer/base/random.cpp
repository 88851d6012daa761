#include "pacer/base/random.h"

#include <cmath>
#include <numbers>

namespace pacer {
namespace {

// SplitMix64's finaliser: spreads (step, sample) over the counter words without a table of carries.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * c[0];
    const uint64_t second = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(second >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(second),
         static_cast<uint32_t>(first >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

RandomStream::RandomStream(uint64_t seed, Purpose purpose, uint64_t step, uint64_t sample)
    : step_(step), sample_(sample) {
  const uint64_t key = mix(seed ^ mix(static_cast<uint64_t>(purpose)));
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

uint64_t RandomStream::block_place() const { return mix(step_ ^ mix(sample_)); }

std::array<uint32_t, 4> RandomStream::block(uint64_t index) const {
  const uint64_t place = block_place();
  return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(place),
                     static_cast<uint32_t>(place >> 32)},
                    key_);
}

uint64_t RandomStream::bits(uint64_t index) const {
  const auto words = block(index);
  return uint64_t{words[0]} | (uint64_t{words[1]} << 32);
}

double RandomStream::uniform(uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1.0p-53; }

double RandomStream::normal(uint64_t index) const {
  const auto words = block(index);
  const uint64_t a = uint64_t{words[0]} | (uint64_t{words[1]} << 32);
  const uint64_t b = uint64_t{words[2]} | (uint64_t{words[3]} << 32);
  const double u = (static_cast<double>(a >> 11) + 0.5) * 0x1.0p-53;  // never 0
  const double v = static_cast<double>(b >> 11) * 0x1.0p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t RandomStream::below(uint64_t index, uint64_t bound) const {
  __extension__ using uint128 = unsigned __int128;
  return static_cast<uint64_t>((static_cast<uint128>(bits(index)) * bound) >> 64);
}

}  // namespace pacer
