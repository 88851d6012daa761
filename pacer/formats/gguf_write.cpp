#include "pacer/formats/gguf_write.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer::formats {
namespace {

constexpr uint64_t kAlignment = 32;  // what readers take without general.alignment

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string raw_type(GgufType type) { return raw(static_cast<uint32_t>(type)); }

std::string raw_text(std::string_view text) { return raw<uint64_t>(text.size()) + std::string(text); }

std::string raw_array(GgufType type, uint64_t size) { return raw_type(type) + raw(size); }

std::string raw_value(const GgufValue& value);

std::string raw_array(const GgufArray& array) {
  std::string bytes = raw_array(array.element_type, array.size);
  if (array.element_type != GgufType::String && array.element_type != GgufType::Array) {
    return bytes + std::string(reinterpret_cast<const char*>(array.numbers.data()), array.numbers.size());
  }
  for (uint64_t i = 0; i < array.size; ++i) bytes += raw_value(array.at(i));
  return bytes;
}

std::string raw_value(const GgufValue& value) {
  const auto whole = [&](auto zero) {
    using T = decltype(zero);
    if (const auto* number = std::get_if<int64_t>(&value.data)) return raw(static_cast<T>(*number));
    return raw(static_cast<T>(std::get<uint64_t>(value.data)));
  };
  switch (value.type) {
    case GgufType::U8:
    case GgufType::I8:
      return whole(uint8_t{});
    case GgufType::U16:
    case GgufType::I16:
      return whole(uint16_t{});
    case GgufType::U32:
    case GgufType::I32:
      return whole(uint32_t{});
    case GgufType::U64:
    case GgufType::I64:
      return whole(uint64_t{});
    case GgufType::F32:
      return raw(static_cast<float>(std::get<double>(value.data)));
    case GgufType::F64:
      return raw(std::get<double>(value.data));
    case GgufType::Bool:
      return raw(static_cast<uint8_t>(std::get<bool>(value.data)));
    case GgufType::String:
      return raw_text(std::get<std::string_view>(value.data));
    case GgufType::Array:
      return raw_array(*std::get<std::shared_ptr<const GgufArray>>(value.data));
  }
  throw Error(ErrorKind::bug, "a GGUF value of no known type");
}

uint64_t tensor_bytes(const GgufTensorSpec& tensor, const std::string& place) {
  const GgmlLayout& layout = ggml_layout(tensor.type);
  uint64_t values = 1;
  for (const int64_t size : tensor.shape) values *= static_cast<uint64_t>(size);
  const auto width = static_cast<uint64_t>(tensor.shape.empty() ? 1 : tensor.shape.back());
  if (width % layout.block_values != 0) {
    throw Error(ErrorKind::format,
                place + ": tensor '" + tensor.name + "' has rows of " + std::to_string(width) + " values, type " +
                    std::string(layout.name) + " needs multiples of " + std::to_string(layout.block_values),
                "choose a type without blocks: bf16 or f32");
  }
  return values / layout.block_values * layout.block_bytes;
}

uint64_t padding(uint64_t bytes) { return (kAlignment - bytes % kAlignment) % kAlignment; }

}  // namespace

void GgufMetadata::set(const std::string& key, std::string type_and_value) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found != entries_.end()) {
    found->second = std::move(type_and_value);
  } else {
    entries_.emplace_back(key, std::move(type_and_value));
  }
}

bool GgufMetadata::has(const std::string& key) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
}

void GgufMetadata::text(const std::string& key, std::string_view value) {
  set(key, raw_type(GgufType::String) + raw_text(value));
}

void GgufMetadata::u32(const std::string& key, int64_t value) {
  if (value < 0 || value > std::numeric_limits<uint32_t>::max()) {
    throw Error(ErrorKind::format, "GGUF key '" + key + "': " + std::to_string(value) + " does not fit into 32 bits");
  }
  set(key, raw_type(GgufType::U32) + raw(static_cast<uint32_t>(value)));
}

void GgufMetadata::f32(const std::string& key, double value) {
  set(key, raw_type(GgufType::F32) + raw(static_cast<float>(value)));
}

void GgufMetadata::flag(const std::string& key, bool value) {
  set(key, raw_type(GgufType::Bool) + raw(static_cast<uint8_t>(value)));
}

void GgufMetadata::texts(const std::string& key, std::span<const std::string> values) {
  std::string bytes = raw_type(GgufType::Array) + raw_array(GgufType::String, values.size());
  for (const std::string& value : values) bytes += raw_text(value);
  set(key, std::move(bytes));
}

void GgufMetadata::i32s(const std::string& key, std::span<const int32_t> values) {
  std::string bytes = raw_type(GgufType::Array) + raw_array(GgufType::I32, values.size());
  for (const int32_t value : values) bytes += raw(value);
  set(key, std::move(bytes));
}

void GgufMetadata::copy(const std::string& key, const GgufValue& value) {
  set(key, raw_type(value.type) + raw_value(value));
}

std::string GgufMetadata::bytes() const {
  std::string all;
  for (const auto& [key, type_and_value] : entries_) all += raw_text(key) + type_and_value;
  return all;
}

void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<GgufTensorSpec>& tensors,
                const std::function<void(const GgufTensorSpec&, std::span<std::byte>)>& fill) {
  std::string head =
      "GGUF" + raw(uint32_t{3}) + raw<uint64_t>(tensors.size()) + raw(metadata.count()) + metadata.bytes();
  uint64_t offset = 0;
  for (const GgufTensorSpec& tensor : tensors) {
    head += raw_text(tensor.name) + raw(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) head += raw(static_cast<uint64_t>(tensor.shape[i]));
    head += raw(static_cast<uint32_t>(tensor.type)) + raw(offset);
    const uint64_t bytes = tensor_bytes(tensor, path.string());
    offset += bytes + padding(bytes);
  }
  head.append(padding(head.size()), '\0');
  write_file(path, [&](int descriptor) {
    write_all(descriptor, std::as_bytes(std::span(head)), path);
    std::vector<std::byte> buffer;
    for (const GgufTensorSpec& tensor : tensors) {
      const uint64_t bytes = tensor_bytes(tensor, path.string());
      buffer.assign(bytes + padding(bytes), std::byte{0});
      fill(tensor, std::span(buffer).first(bytes));
      write_all(descriptor, buffer, path);
    }
  });
}

}  // namespace pacer::formats
