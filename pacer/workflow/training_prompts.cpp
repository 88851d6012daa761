#include "pacer/workflow/training_prompts.h"

#include <algorithm>

#include "pacer/base/json.h"
#include "pacer/data/everyday_prompts.h"
#include "pacer/data/word_problems.h"

namespace pacer::workflow {
namespace {

constexpr int64_t kProblemsAlone = 7000, kProblemsMixed = 2800, kEveryday = 4200;

std::string line(const std::string& id, const std::string& kind, const std::string& text) {
  return Json{{"id", id}, {"kind", kind}, {"turns", {text}}}.dump() + "\n";
}

std::string line(const data::WordProblem& problem) { return line(problem.id, "word_problems", problem.text); }

}  // namespace

const char* name_of(TrainingPrompts prompts) { return prompts == TrainingPrompts::mixed ? "mixed" : "word_problems"; }

std::string training_prompt_lines(TrainingPrompts prompts, uint64_t seed) {
  const bool mixed = prompts == TrainingPrompts::mixed;
  const auto everyday = data::everyday_prompts(seed, mixed ? kEveryday : 0);
  std::string lines;
  size_t next = 0;
  for (const auto& problem : data::word_problems(seed, data::Split::train, mixed ? kProblemsMixed : kProblemsAlone)) {
    lines += line(problem);
    // Behind two problems three requests: one and two of them in turn.
    for (size_t end = std::min(next + (next % 3 == 0 ? 1 : 2), everyday.size()); next < end; ++next) {
      lines += line(everyday[next].id, everyday[next].kind, everyday[next].text);
    }
  }
  return lines;
}

std::string held_out_problem_lines(uint64_t seed) {
  std::string lines;
  for (const auto& problem : data::word_problems(seed, data::Split::held_out, kHeldOutProblems)) lines += line(problem);
  return lines;
}

}  // namespace pacer::workflow
