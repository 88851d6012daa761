#include "pacer/train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <set>

#include <ATen/ops/from_blob.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/generators.h"
#include "pacer/formats/manifest.h"
#include "pacer/nn/tensor_io.h"
#include "pacer/train/checkpoint_schema.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr const char* kEpoch = "epoch_";

// A link that is moved in one step: made under another name, then renamed over the old one.
void point(const fs::path& link, const std::string& target) {
  fs::path temporary = link;
  temporary += ".tmp-" + std::to_string(::getpid());
  std::error_code code;
  fs::remove(temporary, code);
  fs::create_symlink(target, temporary, code);
  if (!code) fs::rename(temporary, link, code);
  if (code) {
    throw Error(ErrorKind::resources, link.string() + ": cannot be moved to " + target + ": " + code.message(),
                "the checkpoint itself is complete; is the folder on a file system with links?");
  }
  sync_path(link.parent_path());
}

void save_optimizer(const fs::path& file, const optim::Optimizer& optimizer) {
  auto state = optimizer.state();
  for (auto& [name, tensor] : state) tensor = device::to_host(tensor);
  std::vector<formats::NamedTensor> tensors;
  for (const auto& [name, tensor] : state) tensors.push_back({name, nn::view_of(tensor)});
  formats::write_safetensors(file, tensors, {{"steps", std::to_string(optimizer.steps())}});
}

constexpr const char* kGenerator = "generator";

std::string generator_file(int64_t rank, int64_t ranks) {
  if (ranks == 0) return std::string(kGenerator) + ".safetensors";
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "%s-%05lld-of-%05lld.safetensors", kGenerator,
                static_cast<long long>(rank) + 1, static_cast<long long>(ranks));
  return name.data();
}

bool holds_generators(const fs::path& checkpoint) {
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().filename().string().starts_with(kGenerator)) return true;
  }
  return false;
}

// Renamed first: whoever looks while files vanish one by one must not see a checkpoint.
void remove_folder(const fs::path& folder) {
  fs::path doomed = folder;
  doomed += ".old-" + std::to_string(::getpid());
  fs::rename(folder, doomed);
  fs::remove_all(doomed);
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path folder, bool writes) : folder_(std::move(folder)) {
  if (!writes) return;
  fs::create_directories(folder_);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".tmp-") != std::string::npos || name.find(".old-") != std::string::npos) {
      fs::remove_all(entry.path());
    }
  }
}

fs::path CheckpointStore::path_of(int64_t step) const {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "step_%06lld", static_cast<long long>(step));
  return folder_ / name.data();
}

void CheckpointStore::save(const TrainState& state, const std::map<std::string, std::string>& fingerprints,
                           const draft::DraftTraining& draft, const optim::Optimizer& optimizer) const {
  save(state, fingerprints, [&draft](const fs::path& folder) { draft.save(folder, at::kFloat); }, optimizer);
}

void CheckpointStore::save(const TrainState& state, const std::map<std::string, std::string>& fingerprints,
                           const std::function<void(const fs::path&)>& write_model,
                           const optim::Optimizer& optimizer) const {
  const fs::path target = path_of(state.step);
  // A folder of this step can only be one that was found damaged, or that a run continued from an older one made
  // before.
  FolderTransaction transaction(target, /*replace=*/true);
  const fs::path& folder = transaction.temporary();
  write_model(folder);
  save_optimizer(folder / "optimizer.safetensors", optimizer);
  if (generator_of_) save_generator(folder, *generator_of_);
  write_file(folder / "state.json", state.to_json().dump(2) + "\n");
  formats::Manifest manifest;
  manifest.schema = kCheckpointSchema;
  manifest.version = kCheckpointVersion;
  manifest.fingerprints = fingerprints;
  manifest.details = {{"step", state.step}};
  formats::write_manifest(folder, manifest);
  transaction.commit();
  mark_latest(state.step);
}

void CheckpointStore::mark_latest(int64_t step) const { point(folder_ / "latest", path_of(step).filename().string()); }

void CheckpointStore::mark_best(int64_t step) const { point(folder_ / "best", path_of(step).filename().string()); }

void CheckpointStore::mark_epoch(int64_t epoch, int64_t step) const {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%s%04lld", kEpoch, static_cast<long long>(epoch));
  point(folder_ / name.data(), path_of(step).filename().string());
}

std::map<fs::path, std::string> CheckpointStore::epoch_links() const {
  std::map<fs::path, std::string> links;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (!entry.is_symlink() || !entry.path().filename().string().starts_with(kEpoch)) continue;
    links[entry.path()] = fs::read_symlink(entry.path()).string();
  }
  return links;
}

void CheckpointStore::restore(const TrainState& state) const {
  const auto all = steps();
  for (auto later = all.upper_bound(state.step); later != all.end(); ++later) {
    log_warning("removing the incomplete checkpoint " + later->second.string() + "; its steps will be done again");
    remove_folder(later->second);
  }
  for (const auto& [link, target] : epoch_links()) {
    if (!fs::exists(folder_ / target)) fs::remove(link);
  }
  mark_latest(state.step);
  if (state.best_step > 0 && all.contains(state.best_step)) mark_best(state.best_step);
}

std::map<int64_t, fs::path> CheckpointStore::steps() const {
  std::map<int64_t, fs::path> steps;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.is_symlink() || !entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t step = 0;
    const auto [end, code] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    if (code == std::errc() && end == name.data() + name.size()) steps[step] = entry.path();
  }
  return steps;
}

void CheckpointStore::prune(int64_t keep_last, int64_t best_step) const {
  auto all = steps();
  for (int64_t kept = 0; kept < keep_last && !all.empty(); ++kept) all.erase(std::prev(all.end()));
  std::set<std::string> of_epochs;
  for (const auto& [link, target] : epoch_links()) of_epochs.insert(target);
  for (const auto& [step, folder] : all) {
    if (step != best_step && !of_epochs.contains(folder.filename().string())) remove_folder(folder);
  }
}

std::optional<fs::path> CheckpointStore::newest() const {
  const auto all = steps();
  for (auto candidate = all.rbegin(); candidate != all.rend(); ++candidate) {
    try {
      formats::read_manifest(candidate->second, kCheckpointSchema, kCheckpointVersion,
                             formats::ManifestCheck::checksums);
      return candidate->second;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;  // another version: the person must decide, not the program
      log_warning("passing over an incomplete checkpoint: " + std::string(error.what()));
    }
  }
  return std::nullopt;
}

TrainState load_state(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "state.json";
  return TrainState::from_json(read_json(file), file.string());
}

void save_generator(const fs::path& checkpoint, const device::Runtime& runtime, int64_t rank, int64_t ranks) {
  device::GeneratorState state = device::generator_state(runtime);
  const auto size = static_cast<int64_t>(state.bytes.size());
  const at::Tensor bytes = at::from_blob(state.bytes.data(), {size}, at::kByte);
  formats::write_safetensors(checkpoint / generator_file(rank, ranks), {{"state", nn::view_of(bytes)}},
                             {{"device", state.product}});
}

void load_generator(const fs::path& checkpoint, const device::Runtime& runtime, uint64_t seed, int64_t rank,
                    int64_t ranks) {
  const fs::path own = checkpoint / generator_file(rank, ranks);
  if (!fs::exists(own)) {
    if (holds_generators(checkpoint)) {
      log_warning("the saved states of random numbers are of another number of ranks: they begin anew from seed " +
                  std::to_string(seed));
    }
    return device::seed_generators(runtime, seed);
  }
  const auto file = formats::SafetensorsFile::open(own);
  const at::Tensor bytes = nn::copy_tensor(file->tensor("state"), file->place()).contiguous();
  const auto* const data = bytes.const_data_ptr<uint8_t>();
  const auto& metadata = file->metadata();
  const auto product = metadata.find("device");
  device::restore_generator(
      runtime, {product == metadata.end() ? std::string() : product->second, {data, data + bytes.numel()}}, seed);
}

void load_optimizer(const fs::path& checkpoint, int64_t steps, optim::Optimizer& optimizer) {
  const auto file = formats::SafetensorsFile::open(checkpoint / "optimizer.safetensors");
  std::map<std::string, at::Tensor> state;
  for (const std::string& name : file->names()) state[name] = nn::copy_tensor(file->tensor(name), file->place());
  optimizer.load_state(state, steps);
}

}  // namespace pacer::train
