// Named tensors in files, mapped and not copied: the one door through which weights come in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pacer/formats/dtype.h"

namespace pacer::formats {

// Row-major bytes that live as long as their source, aligned to the element size.
struct TensorView {
  DType dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Thread-safe for reading.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual std::vector<std::string> names() const = 0;  // sorted
  virtual bool has(const std::string& name) const = 0;
  // Throws Error{format} that names the file and lists the nearest names when it is missing.
  virtual TensorView tensor(const std::string& name) const = 0;
  virtual std::string place() const = 0;  // path, for messages
};

// One safetensors file. Header length, offsets, overlaps, duplicate names and shapes are checked before anything is
// used.
class SafetensorsFile : public TensorSource {
 public:
  static std::shared_ptr<SafetensorsFile> open(const std::filesystem::path& path);
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  // "__metadata__"
  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override;
  TensorView tensor(const std::string& name) const override;
  std::string place() const override;

 private:
  SafetensorsFile() = default;
  struct Data;
  std::shared_ptr<const Data> data_;
  std::map<std::string, std::string> metadata_;
};

// A folder with model.safetensors, or with model.safetensors.index.json and its shards; or one .safetensors file.
std::shared_ptr<TensorSource> open_safetensors(const std::filesystem::path& folder_or_file);

struct NamedTensor {
  std::string name;
  TensorView view;
};

// Written whole or not at all (base/files.h). The data section is aligned to 64 bytes; in it come the widest element
// types first, otherwise the given order, so that every tensor is aligned although the format allows no holes.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

struct TensorSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
};

// The same for tensors that do not fit into memory together: `fill` is called once for each, in the order in which they
// lie in the file, and writes all of its bytes.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                       const std::function<void(const TensorSpec& tensor, std::span<std::byte> bytes)>& fill,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace pacer::formats
