#include "pacer/eval/task.h"

#include <algorithm>
#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"

namespace pacer::eval {

std::vector<Task> read_tasks(const std::vector<std::filesystem::path>& files, int64_t limit) {
  if (limit < 0) throw Error(ErrorKind::usage, "limit is " + std::to_string(limit) + ", allowed is 0 (all) or more");
  std::vector<Task> tasks;
  for (const std::filesystem::path& file : files) {
    Task task{file.stem().string(), {}};
    if (std::any_of(tasks.begin(), tasks.end(), [&](const Task& other) { return other.name == task.name; })) {
      throw Error(ErrorKind::usage, file.string() + ": a task called \"" + task.name + "\" was named before",
                  "results are kept by file name: rename one of the files");
    }
    data::Prompts read = data::read_prompts(file);
    for (const auto& [reason, lines] : read.problems.lines_by_reason) {
      log_warning(file.string() + ": " + std::to_string(lines.size()) + " rows left out (" + reason +
                  "), the first in line " + std::to_string(lines.front()));
    }
    task.prompts = std::move(read.prompts);
    if (limit > 0 && static_cast<int64_t>(task.prompts.size()) > limit) task.prompts.resize(static_cast<size_t>(limit));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

Words words_of(std::shared_ptr<const text::ModelText> text, OrderedJson variables) {
  Words words;
  words.encode = [text, variables = std::move(variables)](const OrderedJson& messages, const OrderedJson& tools) {
    return text->prompt_ids(messages, tools, variables);
  };
  words.decode = [text](std::span<const int64_t> ids) {
    return text->tokenizer()->decode(ids, /*skip_special_tokens=*/true);
  };
  return words;
}

}  // namespace pacer::eval
