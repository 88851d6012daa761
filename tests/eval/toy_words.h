// Prompts for the toy target of tests/decode: letters are tokens.
#pragma once

#include <string>
#include <vector>

#include "pacer/eval/task.h"

namespace pacer::test {

inline eval::Words toy_words(int64_t vocab) {
  eval::Words words;
  words.encode = [vocab](const OrderedJson& messages, const OrderedJson&) {
    std::vector<int64_t> ids;
    for (const OrderedJson& message : messages) {
      for (const char c : message["content"].get<std::string>()) ids.push_back((c - 'a' + 26 * vocab) % vocab);
    }
    return ids;
  };
  words.decode = [](std::span<const int64_t> ids) {
    std::string text;
    for (const int64_t id : ids) text += static_cast<char>('a' + id);
    return text;
  };
  return words;
}

inline eval::Task toy_task(const std::string& name, const std::vector<std::vector<std::string>>& prompts) {
  eval::Task task{name, {}};
  for (const auto& turns : prompts) {
    data::Prompt prompt;
    prompt.id = name + "-" + std::to_string(task.prompts.size());
    prompt.turns = turns;
    task.prompts.push_back(std::move(prompt));
  }
  return task;
}

}  // namespace pacer::test
