// Pieces of measurements: products from register to register, and memory that no cache holds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacer::nn {

// Independent sums of one round, enough of them that none waits for its predecessor.
constexpr int64_t kMultiplierSums = 24;

// `rounds` times kMultiplierSums instructions on 512 bits; only for processors that have them (kernel_choice.h).
void fma_rounds(int64_t rounds);       // vfmadd: 32 operations each
void bf16_dot_rounds(int64_t rounds);  // vdpbf16ps: 64 operations each

// Pushes what lies there out of all caches, so that reading it waits for memory. Does nothing on processors without
// such an instruction for programs.
void flush_cache(const void* memory, size_t bytes);

}  // namespace pacer::nn
