// The state of a training as one folder that any mesh can go on from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "pacer/base/json.h"
#include "pacer/parallel/engine.h"

namespace pacer::parallel {

// What the manifest of a checkpoint calls it. Who keeps more in the folder than an engine gives it a name of its own.
struct CheckpointName {
  std::string schema = "pacer.parallel-checkpoint";
  int64_t version = 2;
};

// What rank 0, and with write_each every rank, adds to a checkpoint.
struct CheckpointExtras {
  CheckpointName name{};
  std::map<std::string, at::Tensor> constants{};  // tensors of the model that nobody trains; they lie with the masters
  std::function<void(const std::filesystem::path& folder)>
      write{};  // further files, into a folder that has no name yet
  std::function<void(const std::filesystem::path& folder)> write_each{};  // files of each rank's own
  std::map<std::string, std::string> fingerprints{};                      // for the manifest, as are the details
  Json details = Json::object();
  bool replace = false;  // a folder of that name may be there and goes
};

// FOLDER/
//   model-00001-of-00004.safetensors, ...   one per rank: the whole masters that it writes
//   model.safetensors.index.json            which master is in which file
//   states/                                 the same two for moments and momentum
//   manifest.json                           steps, counters, mesh, digest of the plan
//
// Tensors are those of Engine::state_tensors(), whole, in the dtype of the master, under the same names whatever the
// mesh is. Masters have the parameters' own names and nothing lies beside them, so the folder is a model to any reader
// of safetensors.
//
// Every rank calls it, with the same folder, on a file system that all ranks reach. The folder is whole or absent: it
// appears when every rank has written its files. An owner writes its own tensors; sharded ones are gathered by a rank
// of the first row. No rank holds more than what is in its own files.
// Throws on every rank: on the one that failed its error, on the others Error{communication} that names it.
void save_checkpoint(Engine& engine, const std::filesystem::path& folder, const CheckpointExtras& extras = {});

// Masters, states, counters and steps. Each rank maps the files and copies only what it holds. Throws Error{data} for a
// folder that is not whole, Error{format} for another name, and for tensors that are missing, left over, or of another
// shape or dtype.
void load_checkpoint(Engine& engine, const std::filesystem::path& folder, const CheckpointName& name = {});

// Masters alone, from a folder or file of safetensors of any source, whatever its floating dtype; states stay.
void load_weights(Engine& engine, const std::filesystem::path& folder_or_file);

}  // namespace pacer::parallel
