// Random numbers as a function: no hidden state, so nothing depends on call order, threads or ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pacer {

// What a draw is for. Two purposes never share a stream; the numbers are part of the reproducibility contract.
enum class Purpose : uint32_t {
  initial_weights = 1,
  anchors = 2,
  data_order = 3,
  sampling = 4,
  prompts = 5,
  dropout = 6,
  bootstrap = 7,
  test = 100,
};

// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The stream of (seed, purpose, step, sample): draw i is a pure function of these and i.
class RandomStream {
 public:
  RandomStream(uint64_t seed, Purpose purpose, uint64_t step = 0, uint64_t sample = 0);

  uint64_t bits(uint64_t index) const;   // 64 uniform bits
  double uniform(uint64_t index) const;  // [0, 1), 53 bits
  double normal(uint64_t index) const;   // N(0, 1), Box-Muller over two draws of index
  // out[0 .. count) ~ N(0, 1) in f32, several times faster than normal(); the numbers are others than normal()'s, and
  // the first n do not depend on count. Largest magnitude: 5.9.
  void fill_normal(float* out, size_t count) const;
  uint64_t below(uint64_t index, uint64_t bound) const;  // [0, bound), bound > 0; bias below 2^-64 * bound

 private:
  uint64_t block_place() const;  // (step, sample) as two counter words
  std::array<uint32_t, 4> block(uint64_t index) const;
  std::array<uint32_t, 2> key_;
  uint64_t step_;
  uint64_t sample_;
};

}  // namespace pacer
