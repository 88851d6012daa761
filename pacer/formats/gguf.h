// GGUF files (versions 2 and 3): key-value metadata and a table of tensors, mapped and checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/formats/ggml_types.h"

namespace pacer::formats {

// The numbers are those of the file format.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

struct GgufArray;

// Strings point into the mapped file.
struct GgufValue {
  GgufType type = GgufType::U8;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, std::shared_ptr<const GgufArray>> data;
};

struct GgufArray {
  GgufType element_type = GgufType::U8;
  uint64_t size = 0;
  std::span<const std::byte> numbers;     // elements of a fixed size, as in the file
  std::vector<std::string_view> strings;  // when element_type is String
  std::vector<GgufValue> arrays;          // when element_type is Array

  GgufValue at(uint64_t index) const;
};

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::F32;
  std::vector<int64_t> shape;  // outermost first, as row-major tensors are written; the file has it reversed
  uint64_t offset = 0;         // from the start of the file
  std::span<const std::byte> bytes;

  int64_t width() const { return shape.empty() ? 1 : shape.back(); }  // values per row
  int64_t rows() const;                                               // product of the other dimensions
};

// Immutable, usable from several threads. Every count, length and offset is checked against the size of the file before
// anything is allocated for it.
class GgufFile {
 public:
  // Throws Error{format}: not GGUF, version 1 or unknown, big-endian, cut off, duplicate names, arrays nested deeper
  // than 8, tensors that overlap or lie outside of the file.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);

  std::string place() const { return file_->path().string(); }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  uint64_t data_offset() const { return data_offset_; }

  // Metadata. The getters without find_ throw Error{format} when the key is missing; all throw when the type is another
  // or the value does not fit. Integers of every width are read as int64, both float widths as double; an integer is
  // not taken for a float or a boolean.
  const std::vector<std::string>& keys() const { return keys_; }  // file order
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const GgufValue* find(std::string_view key) const;  // null when missing
  const GgufValue& value(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string text(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  std::optional<bool> find_boolean(std::string_view key) const;
  std::optional<std::string> find_text(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<bool> booleans(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;  // valid as long as the file

  // Tensors.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // file order
  bool has_tensor(const std::string& name) const { return tensor_index_.contains(name); }
  const GgufTensor& tensor(const std::string& name) const;  // throws Error{format} with the nearest names

  // All values, row-major f32. Throws Error{format} for a type that is not supported.
  std::vector<float> dequantize(const std::string& name) const;
  // Rows [first_row, first_row + count) of the innermost dimension; out: count * width() values.
  // Throws Error{bug} when they are out of range.
  void dequantize_rows(const std::string& name, int64_t first_row, int64_t count, std::span<float> out) const;

 private:
  friend class GgufReader;
  GgufFile() = default;

  std::shared_ptr<const MappedFile> file_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32, data_offset_ = 0;
  std::vector<std::string> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;  // keyed by the mapped bytes
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string, size_t> tensor_index_;
};

std::string_view gguf_type_name(GgufType type);  // "u8", "string", ...
Json to_json(const GgufValue& value);            // strings that are not UTF-8 get replacement characters

}  // namespace pacer::formats
