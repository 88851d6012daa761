#include "pacer/parallel/checkpoint.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/formats/manifest.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/nn/tensor_io.h"

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSchema = "pacer.parallel-checkpoint";
constexpr int64_t kVersion = 1;

std::string file_of(int64_t rank, int64_t ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05lld-of-%05lld.safetensors", static_cast<long long>(rank + 1),
                static_cast<long long>(ranks));
  return name;
}

// The rank that writes a tensor. Sharded ones are spread over the first row, replicated ones over all ranks.
int64_t writer_of(const Engine::StateTensor& tensor, size_t number, const Mesh& mesh) {
  switch (tensor.placement) {
    case Placement::owner:
      return mesh.rank({tensor.owner.replicate, tensor.owner.shard, 0});
    case Placement::sharded:
      return static_cast<int64_t>(number) % mesh.shard;
    case Placement::replicated:
      break;
  }
  return static_cast<int64_t>(number) % mesh.size();
}

// What this rank writes. Rows other than the first hold the same chunks and have nothing to say about them.
std::vector<std::pair<std::string, at::Tensor>> gather_own(Engine& engine) {
  std::vector<std::pair<std::string, at::Tensor>> own;
  const MeshGroups& groups = engine.groups();
  const auto tensors = engine.state_tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool mine = writer_of(tensors[i], i, groups.mesh) == groups.world.rank();
    if (tensors[i].placement == Placement::sharded) {
      if (groups.at.replicate != 0) continue;
      at::Tensor whole = engine.whole(tensors[i]);
      if (mine) own.emplace_back(tensors[i].name, std::move(whole));
    } else if (mine) {
      own.emplace_back(tensors[i].name, engine.held(tensors[i])->values.view(tensors[i].shape));
    }
  }
  return own;
}

void write_own(const std::vector<std::pair<std::string, at::Tensor>>& own, const fs::path& file) {
  std::vector<formats::NamedTensor> named;
  for (const auto& [name, tensor] : own) named.push_back({name, nn::view_of(tensor)});
  formats::write_safetensors(file, named);
}

void write_index(Engine& engine, const fs::path& folder, const std::map<std::string, int64_t>& counters) {
  const MeshGroups& groups = engine.groups();
  const auto tensors = engine.state_tensors();
  Json map = Json::object();
  for (size_t i = 0; i < tensors.size(); ++i) {
    map[tensors[i].name] = file_of(writer_of(tensors[i], i, groups.mesh), groups.mesh.size());
  }
  write_file(folder / "model.safetensors.index.json", Json{{"metadata", Json::object()}, {"weight_map", map}}.dump(1));
  formats::Manifest manifest;
  manifest.schema = kSchema;
  manifest.version = kVersion;
  manifest.fingerprints["plan"] = engine.digest();
  manifest.details = {{"steps", engine.steps()}, {"mesh", groups.mesh.text()}, {"updates", counters}};
  formats::write_manifest(folder, manifest);
}

// Runs `work` on every rank that has some and tells all how it went.
template <class Work>
void everywhere(World& world, const std::string& what, const Work& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  try {
    world.require_success_everywhere(failure == nullptr, what);
  } catch (const Error&) {
    if (failure == nullptr) throw;
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

void copy_held(Engine& engine, const Engine::StateTensor& tensor,
               const std::shared_ptr<const formats::TensorSource>& source, bool any_dtype) {
  const formats::TensorView view = source->tensor(tensor.name);
  const at::ScalarType dtype = nn::scalar_type(view.dtype, source->place());
  if (view.shape != tensor.shape || (any_dtype ? !at::isFloatingType(dtype) : dtype != tensor.dtype)) {
    throw Error(ErrorKind::format,
                source->place() + ": '" + tensor.name + "' is " + c10::str(dtype, " ", at::IntArrayRef(view.shape)) +
                    ", expected " + c10::str(tensor.dtype, " ", at::IntArrayRef(tensor.shape)),
                "it belongs to another model or to other routes");
  }
  const auto run = engine.held(tensor);
  if (!run || run->values.numel() == 0) return;
  const at::Tensor whole = nn::load_tensor(source, tensor.name, dtype);
  run->values.copy_(whole.view({-1}).narrow(0, run->begin, run->values.numel()));
}

}  // namespace

void save_checkpoint(Engine& engine, const fs::path& folder) {
  World& world = engine.groups().world;
  const std::string key = "checkpoint/" + folder.filename().string() + "/" + std::to_string(engine.steps());
  std::optional<FolderTransaction> transaction;
  fs::path temporary;
  everywhere(world, "making the folder of a checkpoint", [&] {
    if (world.rank() != 0) return;
    transaction.emplace(folder);
    temporary = transaction->temporary();
    if (world.size() > 1) world.set(key, temporary.string());
  });
  if (world.rank() != 0) temporary = world.get(key);
  const auto own = gather_own(engine);
  const auto counters = engine.counters();
  everywhere(world, "writing a checkpoint", [&] { write_own(own, temporary / file_of(world.rank(), world.size())); });
  everywhere(world, "finishing a checkpoint", [&] {
    if (world.rank() != 0) return;
    write_index(engine, temporary, counters);
    transaction->commit();
  });
}

void load_checkpoint(Engine& engine, const fs::path& folder) {
  everywhere(engine.groups().world, "loading a checkpoint", [&] {
    const formats::Manifest manifest = formats::read_manifest(folder, kSchema, kVersion);
    const std::shared_ptr<const formats::TensorSource> source = formats::open_safetensors(folder);
    const auto tensors = engine.state_tensors();
    std::set<std::string> expected;
    for (const auto& tensor : tensors) expected.insert(tensor.name);
    for (const std::string& name : source->names()) {
      if (!expected.contains(name)) {
        throw Error(ErrorKind::format, folder.string() + ": '" + name + "' belongs to no parameter of this training",
                    "it was written by another model or with other routes");
      }
    }
    for (const auto& tensor : tensors) copy_held(engine, tensor, source, /*any_dtype=*/false);
    engine.set_counters(manifest.details.at("updates").get<std::map<std::string, int64_t>>());
    engine.set_steps(manifest.details.at("steps").get<int64_t>());
  });
  engine.publish_all();
}

void load_weights(Engine& engine, const fs::path& folder_or_file) {
  everywhere(engine.groups().world, "loading weights", [&] {
    const std::shared_ptr<const formats::TensorSource> source = formats::open_safetensors(folder_or_file);
    for (const auto& tensor : engine.state_tensors()) {
      if (tensor.kind == Engine::StateTensor::Kind::master) copy_held(engine, tensor, source, /*any_dtype=*/true);
    }
  });
  engine.publish_all();
}

}  // namespace pacer::parallel
