// The state of a training as one folder that any mesh can go on from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "pacer/parallel/engine.h"

namespace pacer::parallel {

// FOLDER/
//   model-00001-of-00004.safetensors, ...   one per rank: the whole tensors that it writes
//   model.safetensors.index.json            which tensor is in which file
//   manifest.json                           schema pacer.parallel-checkpoint: steps, counters, mesh, digest of the plan
//
// Tensors are those of Engine::state_tensors(), whole, in the dtype of the master, under the same names whatever the
// mesh is. Masters have the parameters' own names, so any reader of safetensors finds a model in the folder.
//
// Every rank calls it, with the same folder, on a file system that all ranks reach. The folder is whole or absent: it
// appears when every rank has written its file. An owner writes its own tensors; sharded ones are gathered by a rank of
// the first row. No rank holds more than what is in its own file.
// Throws on every rank: on the one that failed its error, on the others Error{communication} that names it.
void save_checkpoint(Engine& engine, const std::filesystem::path& folder);

// Masters, states, counters and steps. Each rank maps the files and copies only what it holds. Throws Error{data} for a
// folder that is not whole, Error{format} for tensors that are missing, left over, or of another shape or dtype.
void load_checkpoint(Engine& engine, const std::filesystem::path& folder);

// Masters alone, from a folder or file of safetensors of any source, whatever its floating dtype; states stay.
void load_weights(Engine& engine, const std::filesystem::path& folder_or_file);

}  // namespace pacer::parallel
