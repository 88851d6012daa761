// Writing GGUF files, version 3, little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pacer/formats/gguf.h"

namespace pacer::formats {

// Keys with their values, in the order in which they were first set; setting a key again replaces its value.
class GgufMetadata {
 public:
  void text(const std::string& key, std::string_view value);
  void u32(const std::string& key, int64_t value);  // throws Error{format} for what does not fit
  void f32(const std::string& key, double value);
  void flag(const std::string& key, bool value);
  void texts(const std::string& key, std::span<const std::string> values);
  void i32s(const std::string& key, std::span<const int32_t> values);
  void copy(const std::string& key, const GgufValue& value);  // as another file has it
  bool has(const std::string& key) const;

  uint64_t count() const { return entries_.size(); }
  std::string bytes() const;  // as they stand in a file

 private:
  void set(const std::string& key, std::string type_and_value);
  std::vector<std::pair<std::string, std::string>> entries_;
};

struct GgufTensorSpec {
  std::string name;
  GgmlType type = GgmlType::F32;
  std::vector<int64_t> shape;  // outermost first
};

// Written whole or not at all (base/files.h), tensors aligned to 32 bytes. `fill` is called once for each tensor, in
// order, and writes all of its bytes; memory is that of the largest tensor.
// Throws Error{format} for rows that are no whole number of the type's blocks, Error{resources} as write_file.
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<GgufTensorSpec>& tensors,
                const std::function<void(const GgufTensorSpec& tensor, std::span<std::byte> bytes)>& fill);

}  // namespace pacer::formats
