#include "pacer/eval/task.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"

namespace pacer::eval {

namespace {

namespace fs = std::filesystem;

struct TaskFile {
  fs::path file;
  int64_t limit;
};

std::vector<fs::path> task_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

[[noreturn]] void refuse_missing(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::string beside;
  if (fs::is_directory(folder)) {
    for (const fs::path& other : task_files_in(folder)) {
      beside += (beside.empty() ? "" : ", ") + other.filename().string();
    }
  }
  throw Error(ErrorKind::usage, file.string() + ": there is no such file of prompts",
              beside.empty() ? "" : folder.string() + " has " + beside);
}

std::vector<TaskFile> task_files(const fs::path& named, int64_t limit) {
  if (fs::is_directory(named)) {
    std::vector<TaskFile> all;
    for (const fs::path& file : task_files_in(named)) all.push_back({file, limit});
    if (all.empty()) throw Error(ErrorKind::usage, named.string() + ": no file of prompts (NAME.jsonl) in this folder");
    return all;
  }
  if (fs::exists(named)) return {{named, limit}};
  const std::string text = named.string();
  const size_t colon = text.rfind(':');
  int64_t own = 0;
  if (colon == std::string::npos) refuse_missing(named);
  const char *begin = text.data() + colon + 1, *behind = text.data() + text.size();
  const auto [end, failure] = std::from_chars(begin, behind, own);
  if (failure != std::errc() || end != behind || own < 1) refuse_missing(named);
  const fs::path file = text.substr(0, colon);
  if (!fs::exists(file)) refuse_missing(file);
  return {{file, own}};
}

}  // namespace

std::vector<Task> read_tasks(const std::vector<std::filesystem::path>& files, int64_t common_limit) {
  if (common_limit < 0) {
    throw Error(ErrorKind::usage, "limit is " + std::to_string(common_limit) + ", allowed is 0 (all) or more");
  }
  std::vector<TaskFile> wanted;
  for (const std::filesystem::path& file : files) {
    for (TaskFile& one : task_files(file, common_limit)) wanted.push_back(std::move(one));
  }
  std::vector<Task> tasks;
  for (const auto& [file, limit] : wanted) {
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
