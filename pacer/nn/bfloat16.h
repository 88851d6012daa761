// bf16 as bits, in loops that the compiler can turn into vector code (c10::BFloat16 hides them behind calls).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace pacer::nn {

inline float widen(float value) { return value; }
inline float widen(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// To nearest, ties to even; a NaN stays one.
template <typename T>
inline T narrow(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    static_assert(std::is_same_v<T, uint16_t>);
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
  }
}

}  // namespace pacer::nn
