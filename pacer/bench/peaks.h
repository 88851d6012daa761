// What one core does when nothing else holds it up: bounds that every kernel can be measured against.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace pacer::bench {

struct Peak {
  std::string instruction;
  double operations = 0;  // of one run: a multiplication and an addition are two
  std::function<void()> run;
};

// Products from register to register, by the widest instruction that this processor has: of f32, of bf16 with f32 sums,
// of unsigned with signed bytes in int32 sums. type: "f32", "bf16", "int8". None without such an instruction.
std::optional<Peak> peak(const std::string& type);

// Reads `count` f32 once, with lines fetched ahead, and returns about their sum (a rest below 128 is left out). Null
// where it is not written for this processor.
using ReadAll = float (*)(const float* values, int64_t count);
ReadAll read_all();

}  // namespace pacer::bench
