// Sixteen floats without intrinsics: the reference for the other row_vector files, and what runs on other processors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

struct Vec {
  float lane[16];

  template <typename Operation>
  static Vec map(const Operation& operation) {
    Vec result;
    for (int i = 0; i < 16; ++i) result.lane[i] = operation(i);
    return result;
  }
  static float widened(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  static uint16_t narrowed(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }

  static Vec all(float value) {
    return map([&](int) { return value; });
  }
  static Vec load(const float* from) {
    return map([&](int i) { return from[i]; });
  }
  static Vec load(const uint16_t* from) {
    return map([&](int i) { return widened(from[i]); });
  }
  // Of sixteen pairs.
  static Vec load_first(const uint16_t* from) {
    return map([&](int i) { return widened(from[2 * i]); });
  }
  static Vec load_second(const uint16_t* from) {
    return map([&](int i) { return widened(from[2 * i + 1]); });
  }
  void store(float* to) const { std::memcpy(to, lane, sizeof lane); }
  void store(uint16_t* to) const {
    for (int i = 0; i < 16; ++i) to[i] = narrowed(lane[i]);
  }
  // As after a store to bf16 and a load from it.
  Vec as_bf16() const {
    return map([&](int i) { return widened(narrowed(lane[i])); });
  }

  friend Vec operator+(const Vec& a, const Vec& b) {
    return map([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  friend Vec operator-(const Vec& a, const Vec& b) {
    return map([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  friend Vec operator*(const Vec& a, const Vec& b) {
    return map([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  friend Vec operator/(const Vec& a, const Vec& b) {
    return map([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  // a * b + c; the vector sets round once here, this one twice.
  static Vec multiply_add(const Vec& a, const Vec& b, const Vec& c) { return a * b + c; }
  static Vec max(const Vec& a, const Vec& b) {
    return map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Vec where_less(const Vec& a, const Vec& b, const Vec& yes, const Vec& no) {
    return map([&](int i) { return a.lane[i] < b.lane[i] ? yes.lane[i] : no.lane[i]; });
  }
  // 2^n for whole n in [-126, 127].
  static Vec power_of_two(const Vec& n) {
    return map([&](int i) {
      const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n.lane[i]) + 127) << 23;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    });
  }
  // In halves: 16 to 8 to 4 to 2 to 1. Every instruction set adds in this order.
  float sum() const {
    Vec part = *this;
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) part.lane[i] += part.lane[i + width];
    }
    return part.lane[0];
  }
  float largest() const {
    float value = lane[0];
    for (int i = 1; i < 16; ++i) value = lane[i] > value ? lane[i] : value;
    return value;
  }
  static void prefetch(const void*) {}
  static void prefetch_near(const void*) {}
};

}  // namespace
