#include "pacer/parallel/checkpoint.h"

#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/device/device_memory.h"
#include "pacer/formats/manifest.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/nn/tensor_io.h"

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;

using Kind = Engine::StateTensor::Kind;

// Masters lie in the folder itself and states in a folder below, each as a model of its own: who only wants the weights
// need not know the states.
constexpr const char* kModel = ".";
constexpr const char* kStates = "states";

const char* part_of(const Engine::StateTensor& tensor) { return tensor.kind == Kind::master ? kModel : kStates; }

std::string file_of(int64_t rank, int64_t ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05lld-of-%05lld.safetensors", static_cast<long long>(rank) + 1,
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

// What this rank writes, by part. Rows other than the first hold the same chunks and have nothing to say about them.
using OwnTensors = std::map<std::string, std::vector<std::pair<std::string, at::Tensor>>>;

OwnTensors gather_own(Engine& engine) {
  OwnTensors own{{kModel, {}}, {kStates, {}}};
  const MeshGroups& groups = engine.groups();
  const auto tensors = engine.state_tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool mine = writer_of(tensors[i], i, groups.mesh) == groups.world.rank();
    auto& part = own.at(part_of(tensors[i]));
    if (tensors[i].placement == Placement::sharded) {
      if (groups.at.replicate != 0) continue;
      at::Tensor whole = engine.whole(tensors[i]);
      if (mine) part.emplace_back(tensors[i].name, device::to_host(whole));
    } else if (mine) {
      part.emplace_back(tensors[i].name, device::to_host(engine.held(tensors[i])->values).view(tensors[i].shape));
    }
  }
  return own;
}

void write_own(const OwnTensors& own, const fs::path& folder, const World& world) {
  for (const auto& [part, tensors] : own) {
    std::vector<formats::NamedTensor> named;
    for (const auto& [name, tensor] : tensors) named.push_back({name, nn::view_of(tensor)});
    formats::write_safetensors(folder / part / file_of(world.rank(), world.size()), named, {{"format", "pt"}});
  }
}

void write_indices(Engine& engine, const fs::path& folder, const CheckpointExtras& extras) {
  const Mesh& mesh = engine.groups().mesh;
  const auto tensors = engine.state_tensors();
  std::map<std::string, Json> maps{{kModel, Json::object()}, {kStates, Json::object()}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const char* part = part_of(tensors[i]);
    maps.at(part)[tensors[i].name] = file_of(writer_of(tensors[i], i, mesh), mesh.size());
  }
  for (const auto& [name, tensor] : extras.constants) maps.at(kModel)[name] = file_of(0, mesh.size());
  for (const auto& [part, map] : maps) {
    write_file(folder / part / "model.safetensors.index.json",
               Json{{"metadata", Json::object()}, {"weight_map", map}}.dump(1));
  }
}

void write_description(Engine& engine, const fs::path& folder, const std::map<std::string, int64_t>& counters,
                       const CheckpointExtras& extras) {
  formats::Manifest manifest;
  manifest.schema = extras.name.schema;
  manifest.version = extras.name.version;
  manifest.fingerprints = extras.fingerprints;
  manifest.fingerprints["plan"] = engine.digest();
  manifest.details = extras.details;
  Json constants = Json::array();
  for (const auto& [name, tensor] : extras.constants) constants.push_back(name);
  manifest.details["engine"] = {{"steps", engine.steps()},
                                {"mesh", engine.groups().mesh.text()},
                                {"updates", counters},
                                {"constants", constants}};
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

void save_checkpoint(Engine& engine, const fs::path& folder, const CheckpointExtras& extras) {
  World& world = engine.groups().world;
  const bool first = world.rank() == 0;
  const std::string key = "checkpoint/" + folder.filename().string() + "/" + std::to_string(engine.steps());
  std::optional<FolderTransaction> transaction;
  fs::path temporary;
  everywhere(world, "making the folder of a checkpoint", [&] {
    if (!first) return;
    transaction.emplace(folder, extras.replace);
    temporary = transaction->temporary();
    fs::create_directory(temporary / kStates);
    if (world.size() > 1) world.set(key, temporary.string());
  });
  if (!first) temporary = world.get(key);
  OwnTensors own = gather_own(engine);
  if (first) own.at(kModel).insert(own.at(kModel).end(), extras.constants.begin(), extras.constants.end());
  const auto counters = engine.counters();
  everywhere(world, "writing a checkpoint", [&] {
    write_own(own, temporary, world);
    if (extras.write_each) extras.write_each(temporary);
  });
  everywhere(world, "finishing a checkpoint", [&] {
    if (!first) return;
    write_indices(engine, temporary, extras);
    if (extras.write) extras.write(temporary);
    write_description(engine, temporary, counters, extras);
    transaction->commit();
  });
}

void load_checkpoint(Engine& engine, const fs::path& folder, const CheckpointName& name) {
  everywhere(engine.groups().world, "loading a checkpoint", [&] {
    const formats::Manifest manifest = formats::read_manifest(folder, name.schema, name.version);
    const auto described = manifest.details.find("engine");
    if (described == manifest.details.end()) {
      throw Error(ErrorKind::format, folder.string() + ": not a checkpoint of ranks that trained together",
                  "it was written by one process alone, or by an earlier version");
    }
    const std::map<std::string, std::shared_ptr<const formats::TensorSource>> sources = {
        {kModel, formats::open_safetensors(folder)}, {kStates, formats::open_safetensors(folder / kStates)}};
    const auto tensors = engine.state_tensors();
    std::set<std::string> expected;
    for (const auto& tensor : tensors) expected.insert(tensor.name);
    for (const Json& constant : described->at("constants")) expected.insert(constant.get<std::string>());
    for (const auto& [part, source] : sources) {
      for (const std::string& found : source->names()) {
        if (expected.contains(found)) continue;
        throw Error(ErrorKind::format, folder.string() + ": '" + found + "' belongs to no parameter of this training",
                    "it was written by another model or with other routes");
      }
    }
    for (const auto& tensor : tensors) copy_held(engine, tensor, sources.at(part_of(tensor)), /*any_dtype=*/false);
    engine.set_counters(described->at("updates").get<std::map<std::string, int64_t>>());
    engine.set_steps(described->at("steps").get<int64_t>());
  });
  engine.publish_all();
}

void load_weights(Engine& engine, const fs::path& folder_or_file) {
  everywhere(engine.groups().world, "loading weights", [&] {
    const std::shared_ptr<const formats::TensorSource> source = formats::open_safetensors(folder_or_file);
    for (const auto& tensor : engine.state_tensors()) {
      if (tensor.kind == Kind::master) copy_held(engine, tensor, source, /*any_dtype=*/true);
    }
  });
  engine.publish_all();
}

}  // namespace pacer::parallel
