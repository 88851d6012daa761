#include <algorithm>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/json.h"
#include "pacer/workflow/report/read_evaluation.h"
#include "pacer/workflow/report/read_training.h"
#include "pacer/workflow/report/report.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;

// The folder itself, then the folders in it and in those, in the order of their names.
std::vector<fs::path> folders_of(const fs::path& top) {
  std::vector<fs::path> found;
  for (auto entry = fs::recursive_directory_iterator(top); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry.depth() >= 1) entry.disable_recursion_pending();
    if (entry->is_directory() && !entry->is_symlink()) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  found.insert(found.begin(), top);
  return found;
}

// The first of `folders` that holds a file of this name; an empty path when none does.
fs::path folder_with(const std::vector<fs::path>& folders, const char* name) {
  const auto found = std::find_if(folders.begin(), folders.end(),
                                  [&](const fs::path& folder) { return fs::is_regular_file(folder / name); });
  return found == folders.end() ? fs::path() : *found;
}

}  // namespace

ReportData read_report(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw Error(ErrorKind::data, folder.string() + ": not a folder",
                "give the folder of a training run or of a quickstart");
  }
  const std::vector<fs::path> folders = folders_of(folder);
  const fs::path run = folder_with(folders, "metrics.jsonl"), summary = folder_with(folders, "summary.json");
  const fs::path evaluation = folder_with(folders, "evaluation.json");
  if (run.empty() && summary.empty() && evaluation.empty()) {
    throw Error(ErrorKind::data, folder.string() + ": neither metrics.jsonl nor evaluation.json in it",
                "give the folder of a training run, of an evaluation or of a quickstart");
  }
  ReportData data;
  data.title = "Draft report";
  data.subtitle = fs::weakly_canonical(folder).filename().string();
  if (!run.empty()) read_training(run, data);
  const auto with = [&](const fs::path& where, const char* name, auto read) {
    if (!where.empty()) read(read_json(where / name), (where / name).string(), data);
  };
  with(summary, "summary.json", read_summary);
  with(evaluation, "evaluation.json", read_evaluation);
  return data;
}

}  // namespace pacer::workflow
