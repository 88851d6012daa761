#include "pacer/formats/gguf.h"

#include <array>
#include <limits>

#include "pacer/base/error.h"
#include "pacer/base/nearest.h"

namespace pacer::formats {
namespace {

std::string kind_of(const GgufValue& value) {
  std::string name(gguf_type_name(value.type));
  if (value.type == GgufType::Array) {
    name += " of " + std::string(gguf_type_name(std::get<std::shared_ptr<const GgufArray>>(value.data)->element_type));
  }
  return name;
}

// What a getter needs to read a value or to refuse it.
struct Place {
  const GgufFile& file;
  std::string_view key;

  [[noreturn]] void refuse(const GgufValue& value, const char* wanted) const {
    throw Error(ErrorKind::format,
                file.place() + ": metadata key '" + std::string(key) + "' is of type " + kind_of(value) + ", " +
                    wanted + " is needed",
                "the file was made by a program that understands this key differently");
  }
};

int64_t as_integer(const GgufValue& value, const Place& place) {
  if (const auto* number = std::get_if<int64_t>(&value.data)) return *number;
  const auto* number = std::get_if<uint64_t>(&value.data);
  if (number == nullptr) place.refuse(value, "an integer");
  if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw Error(ErrorKind::format, place.file.place() + ": metadata key '" + std::string(place.key) + "' is " +
                                       std::to_string(*number) + ", too large");
  }
  return static_cast<int64_t>(*number);
}

double as_number(const GgufValue& value, const Place& place) {
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  place.refuse(value, "a floating-point number");
}

bool as_boolean(const GgufValue& value, const Place& place) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  place.refuse(value, "a boolean");
}

std::string as_text(const GgufValue& value, const Place& place) {
  if (const auto* text = std::get_if<std::string_view>(&value.data)) return std::string(*text);
  place.refuse(value, "a string");
}

const GgufArray& as_array(const GgufValue& value, const Place& place) {
  if (const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value.data)) return **array;
  place.refuse(value, "an array");
}

template <typename T, typename Read>
std::optional<T> optional(const GgufFile& file, std::string_view key, Read read) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return std::nullopt;
  return read(*value, Place{file, key});
}

template <typename T, typename Read>
std::vector<T> list(const GgufFile& file, std::string_view key, Read read) {
  const Place place{file, key};
  const GgufArray& array = as_array(file.value(key), place);
  std::vector<T> result;
  result.reserve(array.size);
  for (uint64_t i = 0; i < array.size; ++i) result.push_back(read(array.at(i), place));
  return result;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  constexpr std::array<std::string_view, 13> kNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                    "bool", "string", "array", "u64", "i64", "f64"};
  return kNames.at(static_cast<size_t>(type));
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const GgufValue& GgufFile::value(std::string_view key) const {
  if (const GgufValue* found = find(key)) return *found;
  throw Error(ErrorKind::format, place() + ": no metadata key '" + std::string(key) + "'",
              "the nearest keys are " + quoted_list(nearest(key, keys_)));
}

int64_t GgufFile::integer(std::string_view key) const { return as_integer(value(key), {*this, key}); }
double GgufFile::number(std::string_view key) const { return as_number(value(key), {*this, key}); }
bool GgufFile::boolean(std::string_view key) const { return as_boolean(value(key), {*this, key}); }
std::string GgufFile::text(std::string_view key) const { return as_text(value(key), {*this, key}); }

std::optional<int64_t> GgufFile::find_integer(std::string_view key) const {
  return optional<int64_t>(*this, key, as_integer);
}
std::optional<double> GgufFile::find_number(std::string_view key) const {
  return optional<double>(*this, key, as_number);
}
std::optional<bool> GgufFile::find_boolean(std::string_view key) const {
  return optional<bool>(*this, key, as_boolean);
}
std::optional<std::string> GgufFile::find_text(std::string_view key) const {
  return optional<std::string>(*this, key, as_text);
}

std::vector<int64_t> GgufFile::integers(std::string_view key) const { return list<int64_t>(*this, key, as_integer); }
std::vector<double> GgufFile::numbers(std::string_view key) const { return list<double>(*this, key, as_number); }
std::vector<bool> GgufFile::booleans(std::string_view key) const { return list<bool>(*this, key, as_boolean); }

std::vector<std::string_view> GgufFile::texts(std::string_view key) const {
  const Place place{*this, key};
  const GgufArray& array = as_array(value(key), place);
  if (array.element_type != GgufType::String) place.refuse(value(key), "an array of strings");
  return array.strings;
}

int64_t GgufTensor::rows() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  return count;
}

const GgufTensor& GgufFile::tensor(const std::string& name) const {
  if (const auto found = tensor_index_.find(name); found != tensor_index_.end()) return tensors_[found->second];
  std::vector<std::string> known;
  for (const GgufTensor& candidate : tensors_) known.push_back(candidate.name);
  throw Error(ErrorKind::format, place() + ": no tensor '" + name + "'",
              "the nearest names are " + quoted_list(nearest(name, known)));
}

std::vector<float> GgufFile::dequantize(const std::string& name) const {
  const GgufTensor& found = tensor(name);
  std::vector<float> values(static_cast<size_t>(found.rows() * found.width()));
  dequantize_rows(name, 0, found.rows(), values);
  return values;
}

void GgufFile::dequantize_rows(const std::string& name, int64_t first_row, int64_t count, std::span<float> out) const {
  const GgufTensor& found = tensor(name);
  if (first_row < 0 || count < 0 || first_row > found.rows() - count) {
    throw Error(ErrorKind::bug, place() + ": tensor '" + name + "': rows " + std::to_string(first_row) + " to " +
                                    std::to_string(first_row + count) + " of " + std::to_string(found.rows()));
  }
  if (!can_dequantize(found.type)) {
    throw Error(ErrorKind::format,
                place() + ": tensor '" + name + "' is of type " + std::string(ggml_layout(found.type).name) +
                    ", which is not supported",
                "use a file in F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4");
  }
  const GgmlLayout& layout = ggml_layout(found.type);
  const size_t row_bytes = static_cast<size_t>(found.width()) / layout.block_values * layout.block_bytes;
  dequantize_blocks(
      found.type,
      found.bytes.subspan(static_cast<size_t>(first_row) * row_bytes, static_cast<size_t>(count) * row_bytes), out);
}

Json to_json(const GgufValue& value) {
  if (const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value.data)) {
    Json list = Json::array();
    for (uint64_t i = 0; i < (*array)->size; ++i) list.push_back(to_json((*array)->at(i)));
    return list;
  }
  if (const auto* text = std::get_if<std::string_view>(&value.data)) {
    // Through a dump that replaces what is not UTF-8, so that the document can be written later.
    return Json::parse(Json(std::string(*text)).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  if (const auto* number = std::get_if<uint64_t>(&value.data)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value.data)) return *number;
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  return std::get<bool>(value.data);
}

}  // namespace pacer::formats
