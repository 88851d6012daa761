// LibTorch's random number generators of host and device. Pacer's own draws do not use them (pacer/base/random.h);
// operators such as dropout do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pacer/device/runtime.h"

namespace pacer::device {

// Seeds the host's generator and the device's.
void seed_generators(const Runtime& runtime, uint64_t seed);

// The device's generator, for a checkpoint.
struct GeneratorState {
  std::string product;         // whose bytes these are: another product cannot read them
  std::vector<uint8_t> bytes;  // as the back end gives them
};
GeneratorState generator_state(const Runtime& runtime);

// Goes on where `state` was taken. For a state of another product, or none (a checkpoint from before), the generators
// are seeded with `seed`, the same at every try, and a warning says so; returns whether the state was taken.
bool restore_generator(const Runtime& runtime, const GeneratorState& state, uint64_t seed);

}  // namespace pacer::device
