#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/base/logging.h"
#include "pacer/base/nearest.h"
#include "pacer/formats/safetensors_header.h"
#include "pacer/formats/tensor_source.h"

namespace pacer::formats {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr size_t kPrefix = 8;

[[noreturn]] void missing(const std::string& name, const TensorSource& source) {
  const std::vector<std::string> close = nearest(name, source.names());
  throw Error(ErrorKind::format, source.place() + ": no tensor '" + name + "'",
              close.empty() ? "the file holds no tensors" : "the nearest names are " + quoted_list(close));
}

}  // namespace

struct SafetensorsFile::Data {
  std::shared_ptr<const MappedFile> file;
  std::span<const std::byte> section;
  std::map<std::string, SafetensorsEntry> tensors;

  // Files of early writers place tensors at odd addresses. Those are copied once, so that every view may be read
  // through a pointer to its element type.
  mutable std::mutex mutex;
  mutable std::map<std::string, std::vector<std::max_align_t>> aligned;
};

std::shared_ptr<SafetensorsFile> SafetensorsFile::open(const fs::path& path) {
  auto data = std::make_shared<Data>();
  data->file = MappedFile::open(path);
  const std::span<const std::byte> bytes = data->file->bytes();
  const std::string place = path.string();
  uint64_t length = 0;
  if (bytes.size() < kPrefix) {
    throw Error(ErrorKind::format, place + ": " + std::to_string(bytes.size()) + " bytes are no safetensors file");
  }
  for (size_t i = 0; i < kPrefix; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > kMaxHeader || length > bytes.size() - kPrefix) {
    throw Error(
        ErrorKind::format,
        place + ": a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(bytes.size()),
        "this is not a safetensors file, or it was cut off; fetch it again");
  }
  data->section = bytes.subspan(kPrefix + length);
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + kPrefix, length);
  SafetensorsHeader header = parse_safetensors_header(json, data->section.size(), place);
  data->tensors = std::move(header.tensors);

  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->data_ = std::move(data);
  file->metadata_ = std::move(header.metadata);
  return file;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> result;
  for (const auto& [name, entry] : data_->tensors) result.push_back(name);
  return result;
}

bool SafetensorsFile::has(const std::string& name) const { return data_->tensors.contains(name); }

std::string SafetensorsFile::place() const { return data_->file->path().string(); }

TensorView SafetensorsFile::tensor(const std::string& name) const {
  const auto found = data_->tensors.find(name);
  if (found == data_->tensors.end()) missing(name, *this);
  const SafetensorsEntry& entry = found->second;
  std::span<const std::byte> bytes = data_->section.subspan(entry.begin, entry.end - entry.begin);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % item_size(entry.dtype) != 0 && !bytes.empty()) {
    const std::scoped_lock lock(data_->mutex);
    std::vector<std::max_align_t>& copy = data_->aligned[name];
    if (copy.empty()) {
      copy.resize((bytes.size() + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
      std::memcpy(copy.data(), bytes.data(), bytes.size());
    }
    bytes = {reinterpret_cast<const std::byte*>(copy.data()), bytes.size()};
  }
  return {entry.dtype, entry.shape, bytes};
}

namespace {

// model.safetensors.index.json: which shard holds which tensor.
class ShardedSafetensors : public TensorSource {
 public:
  explicit ShardedSafetensors(const fs::path& index) : place_(index.string()) {
    const Json json = read_json(index);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (!json.is_object() || map == json.end() || !map->is_object()) {
      throw Error(ErrorKind::format, place_ + ": no object weight_map", "it should map tensor names to file names");
    }
    require_all_shards(index.parent_path(), *map);
    std::map<std::string, std::shared_ptr<SafetensorsFile>> shards;
    for (const auto& [name, file_name] : map->items()) {
      if (!file_name.is_string()) {
        throw Error(ErrorKind::format, place_ + ": weight_map: '" + name + "' is not mapped to a file name");
      }
      std::shared_ptr<SafetensorsFile>& shard = shards[file_name.get<std::string>()];
      files_.insert(file_name.get<std::string>());
      if (!shard) shard = SafetensorsFile::open(inside(index.parent_path(), file_name.get<std::string>()));
      if (!shard->has(name)) {
        throw Error(ErrorKind::format, place_ + ": tensor '" + name + "' is not in " + shard->place(),
                    "the index and its shards do not belong together; fetch the folder again");
      }
      shard_of_.emplace(name, shard);
    }
  }

  bool uses(const std::string& file_name) const { return files_.contains(file_name); }
  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, shard] : shard_of_) result.push_back(name);
    return result;
  }
  bool has(const std::string& name) const override { return shard_of_.contains(name); }
  std::string place() const override { return place_; }
  TensorView tensor(const std::string& name) const override {
    const auto found = shard_of_.find(name);
    if (found == shard_of_.end()) missing(name, *this);
    return found->second->tensor(name);
  }

 private:
  // All missing names at once, before anything is read: an interrupted download often lacks several.
  void require_all_shards(const fs::path& folder, const Json& map) const {
    std::set<std::string> named, missing;
    for (const auto& [name, file_name] : map.items()) {
      if (!file_name.is_string() || !named.insert(file_name.get<std::string>()).second) continue;
      if (!fs::exists(inside(folder, file_name.get<std::string>()))) missing.insert(file_name.get<std::string>());
    }
    if (missing.empty()) return;
    constexpr size_t kShown = 10;
    const std::vector<std::string> shown(
        missing.begin(), std::next(missing.begin(), static_cast<std::ptrdiff_t>(std::min(kShown, missing.size()))));
    const bool single = fs::exists(folder / "model.safetensors");
    throw Error(
        ErrorKind::data,
        place_ + ": " + std::to_string(missing.size()) + " of " + std::to_string(named.size()) +
            " files are not there: " + quoted_list(shown) + (missing.size() > kShown ? ", ..." : ""),
        single ? "the folder also has model.safetensors: if that one is whole, remove the index, which is of another "
                 "model or an older version"
               : "fetch the folder again");
  }

  std::string place_;
  std::set<std::string> files_;
  std::map<std::string, std::shared_ptr<SafetensorsFile>> shard_of_;
};

}  // namespace

std::shared_ptr<TensorSource> open_safetensors(const fs::path& folder_or_file) {
  if (!fs::is_directory(folder_or_file)) return SafetensorsFile::open(folder_or_file);
  const fs::path single = folder_or_file / "model.safetensors";
  const fs::path index = folder_or_file / "model.safetensors.index.json";
  if (fs::exists(index)) {
    auto sharded = std::make_shared<ShardedSafetensors>(index);
    if (fs::exists(single) && !sharded->uses("model.safetensors")) {
      log_warning(single.string() + " is not read: model.safetensors.index.json beside it names other files");
    }
    return sharded;
  }
  if (fs::exists(single)) return SafetensorsFile::open(single);
  const bool pickled =
      fs::exists(folder_or_file / "pytorch_model.bin") || fs::exists(folder_or_file / "pytorch_model.bin.index.json");
  throw Error(
      ErrorKind::format, folder_or_file.string() + ": neither model.safetensors nor model.safetensors.index.json",
      pickled ? "pytorch_model.bin is not read, because unpickling runs code from the file; convert it to safetensors"
              : "give the folder of a Hugging Face model");
}

}  // namespace pacer::formats
