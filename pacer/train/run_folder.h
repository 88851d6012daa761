// The folder of one training run: its names, and the lock that keeps a second process out.
#pragma once

#include <filesystem>
#include <memory>

#include "pacer/base/lock.h"

namespace pacer::train {

class RunFolder {
 public:
  // Creates the folder where it is missing and locks it until the object or the process ends, also by kill -9.
  // Throws Error{usage}: another process trains in it, or it holds other things than a run. Throws Error{resources}
  // when it cannot be created.
  // writes: false for the ranks beside the one that writes, which neither make nor lock it.
  explicit RunFolder(std::filesystem::path path, bool writes = true);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path recipe() const { return path_ / "recipe.yaml"; }
  std::filesystem::path plan() const { return path_ / "plan.json"; }
  std::filesystem::path parameters() const { return path_ / "parameters.txt"; }
  std::filesystem::path environment() const { return path_ / "environment.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path tensorboard() const { return path_ / "tensorboard"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<const FileLock> lock_;
};

// The draft that a run has to offer: checkpoints/best, else checkpoints/latest; a folder that is a checkpoint itself is
// returned as it is. Throws Error{data} when there is none.
std::filesystem::path best_draft(const std::filesystem::path& run_or_checkpoint);

}  // namespace pacer::train
