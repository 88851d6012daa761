// Short arithmetic word problems made from templates: prompts without a licence question and with a clean split.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pacer::data {

enum class Split { train, held_out };

struct WordProblem {
  std::string id;         // "train-17", "held-out-3"
  std::string pattern;    // name of the template
  std::string name;       // the person in it
  int64_t first, second;  // the two numbers
  std::string text;       // what the user asks
};

// `count` problems without two equal texts. Problem i depends on (seed, split) and on the problems before it only, so a
// longer list begins with the shorter one.
//
// The splits are disjoint in what a draft could learn by heart: no person of one occurs in the other, and neither does
// an unordered pair of numbers. They share the templates: a draft trained on them knows the domain, not the answers.
// Throws Error{usage} for a count that is negative or above 100,000.
std::vector<WordProblem> word_problems(uint64_t seed, Split split, int64_t count);

// The names of the templates, for tables.
std::vector<std::string> word_problem_patterns();

}  // namespace pacer::data
