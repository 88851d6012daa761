#include "pacer/train/run_folder.h"

#include <algorithm>
#include <array>
#include <string>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 8> kOwnNames = {"run.lock",       "recipe.yaml",   "environment.json", "plan.json",
                                                  "parameters.txt", "metrics.jsonl", "tensorboard",      "checkpoints"};

// A folder with files of somebody else and no plan was meant for something else.
void refuse_foreign_folder(const fs::path& path) {
  if (fs::exists(path / "plan.json")) return;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    const bool own = std::ranges::any_of(
        kOwnNames, [&](const char* known) { return name == known || name.starts_with(std::string(known) + ".tmp-"); });
    if (own) continue;
    throw Error(ErrorKind::usage, path.string() + ": holds '" + name + "' and is not the folder of a run",
                "give the run a folder of its own with --run");
  }
}

}  // namespace

RunFolder::RunFolder(fs::path path, bool writes) : path_(std::move(path)) {
  if (!writes) return;
  std::error_code code;
  fs::create_directories(path_, code);
  if (!fs::is_directory(path_)) {
    throw Error(ErrorKind::resources, path_.string() + ": cannot be created: " + code.message(),
                "may this user write there, and is there a file of that name?");
  }
  refuse_foreign_folder(path_);
  lock_ = std::make_unique<const FileLock>(
      path_ / "run.lock", path_.string() + ": another process trains in this folder",
      "wait for it or stop it with Ctrl-C; for a second run give another folder with --run");
  for (const char* name : kOwnNames) remove_leftovers(path_ / name);
}

fs::path best_draft(const fs::path& path) {
  if (fs::exists(path / "config.json")) return path;
  for (const char* name : {"best", "latest"}) {
    const fs::path checkpoint = path / "checkpoints" / name;
    if (fs::exists(checkpoint / "config.json")) return fs::canonical(checkpoint);
  }
  throw Error(ErrorKind::data, path.string() + ": neither a draft nor a run with a checkpoint",
              "give the folder of a training run or one of its checkpoints");
}

}  // namespace pacer::train
