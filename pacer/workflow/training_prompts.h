// What the quickstart lets the target answer: the prompts that the draft is trained on, and those it is measured on.
#pragma once

#include <cstdint>
#include <string>

namespace pacer::workflow {

// Word problems alone, or everyday requests besides: three of five prompts.
enum class TrainingPrompts { word_problems, mixed };
const char* name_of(TrainingPrompts prompts);  // "word_problems", "mixed"

constexpr int64_t kHeldOutProblems = 64;

// JSON Lines of {"id", "kind", "turns"}, more than any plan answers. Every beginning has nearly the same shares of
// kinds.
std::string training_prompt_lines(TrainingPrompts prompts, uint64_t seed);

// kHeldOutProblems word problems that share neither names nor pairs of numbers with those of training.
std::string held_out_problem_lines(uint64_t seed);

}  // namespace pacer::workflow
