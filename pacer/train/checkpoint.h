// Checkpoints: one folder per step, whole or absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "pacer/device/runtime.h"
#include "pacer/draft/training.h"
#include "pacer/optim/optimizer.h"
#include "pacer/train/state.h"

namespace pacer::train {

// checkpoints/
//   step_000200/  config.json, model.safetensors (f32 masters), optimizer.safetensors, generator.safetensors,
//                 state.json, manifest.json
//   latest -> step_000200
//   best -> step_000150        (the best validation tau)
//   epoch_0002 -> step_000120  (where the second epoch ended, when the recipe asks for it)
//
// A folder is filled under a temporary name, fsynced with all of its files, renamed, and only then `latest` moves to
// it.
class CheckpointStore {
 public:
  // Removes what interrupted writers left behind. The caller holds the lock of the run. writes: false for the ranks
  // beside the one that does, which only ask for paths.
  explicit CheckpointStore(std::filesystem::path folder, bool writes = true);

  // The state of this device's random numbers is then saved as well, for one process alone. Nothing in Pacer draws from
  // it; an operator of LibTorch that does goes on where it was.
  void use_generator_of(const device::Runtime& runtime) { generator_of_ = runtime; }

  // write_model: puts the model's files into the folder that it is given.
  void save(const TrainState& state, const std::map<std::string, std::string>& fingerprints,
            const std::function<void(const std::filesystem::path&)>& write_model,
            const optim::Optimizer& optimizer) const;

  // fingerprints: what the draft was made from, for the manifest ("target", "train_rows", ...).
  void save(const TrainState& state, const std::map<std::string, std::string>& fingerprints,
            const draft::DraftTraining& draft, const optim::Optimizer& optimizer) const;

  // `latest` points to this step from now on, whose folder ranks wrote together.
  void mark_latest(int64_t step) const;

  // `best` points to this step from now on; it must exist.
  void mark_best(int64_t step) const;

  // `epoch_EPOCH` points to this step from now on; it must exist, and prune() leaves it.
  void mark_epoch(int64_t epoch, int64_t step) const;

  // Removes all but the newest `keep_last`, those of epochs and, unless it is 0, step `best_step`.
  void prune(int64_t keep_last, int64_t best_step) const;

  // After a crash: `latest` and `best` say what `state` says, and folders of later steps, which are damaged, are
  // removed, as are links to them.
  void restore(const TrainState& state) const;

  // The newest folder whose files are all there with their checksums. One that is not is passed over with a warning.
  std::optional<std::filesystem::path> newest() const;

  std::filesystem::path path_of(int64_t step) const;

 private:
  std::map<int64_t, std::filesystem::path> steps() const;            // complete or not
  std::map<std::filesystem::path, std::string> epoch_links() const;  // and the folders that they name
  std::filesystem::path folder_;
  std::optional<device::Runtime> generator_of_;
};

TrainState load_state(const std::filesystem::path& checkpoint);

// The state of a rank's random numbers lies in a file of its own, generator-00001-of-00004.safetensors; that of one
// process alone (ranks = 0) in generator.safetensors.
void save_generator(const std::filesystem::path& checkpoint, const device::Runtime& runtime, int64_t rank = 0,
                    int64_t ranks = 0);
// Goes on with the random numbers of the checkpoint, or seeds them with `seed`: with a warning when they are of another
// device or another number of ranks, silently when it holds none.
void load_generator(const std::filesystem::path& checkpoint, const device::Runtime& runtime, uint64_t seed,
                    int64_t rank = 0, int64_t ranks = 0);
void load_optimizer(const std::filesystem::path& checkpoint, int64_t steps, optim::Optimizer& optimizer);

}  // namespace pacer::train
