// Everyday requests made from templates: what a draft for a general assistant is trained on, without a licence
// question.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pacer::data {

struct EverydayPrompt {
  std::string id;    // "chat-train-17"
  std::string kind;  // "chat", "code", "questions"
  std::string text;  // what the user asks
};

// `count` prompts without two equal texts: half of them advice for daily life, a quarter about programs, a quarter
// about the world. Prompt i depends on the seed and on the prompts before it only, so a longer list begins with the
// shorter one. Phrases are filled into wordings, so that neighbours share their manner and not their matter. None of
// the prompts that Pacer ships for measuring (data/prompts) is among them, nor one that says the same in nearly the
// same words. Throws Error{usage} for a count that is negative or above 6,000.
std::vector<EverydayPrompt> everyday_prompts(uint64_t seed, int64_t count);

}  // namespace pacer::data
