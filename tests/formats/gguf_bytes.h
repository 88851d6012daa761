// GGUF files made by hand, good and bad, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "pacer/base/files.h"
#include "pacer/formats/gguf.h"

namespace pacer::test {

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string gguf_string(std::string_view text) { return raw<uint64_t>(text.size()) + std::string(text); }

class GgufBytes {
 public:
  uint32_t version = 3;
  uint64_t extra_values = 0, extra_tensors = 0;  // lies in the header

  GgufBytes& pair(std::string_view key, formats::GgufType type, const std::string& value) {
    pairs_ += gguf_string(key) + raw(static_cast<uint32_t>(type)) + value;
    ++pair_count_;
    return *this;
  }
  GgufBytes& text(std::string_view key, std::string_view value) {
    return pair(key, formats::GgufType::String, gguf_string(value));
  }
  GgufBytes& u32(std::string_view key, uint32_t value) { return pair(key, formats::GgufType::U32, raw(value)); }
  GgufBytes& f32(std::string_view key, float value) { return pair(key, formats::GgufType::F32, raw(value)); }
  GgufBytes& flag(std::string_view key, bool value) { return pair(key, formats::GgufType::Bool, raw<uint8_t>(value)); }
  GgufBytes& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw(static_cast<uint32_t>(formats::GgufType::String)) + raw<uint64_t>(values.size());
    for (const std::string& value : values) bytes += gguf_string(value);
    return pair(key, formats::GgufType::Array, bytes);
  }

  // shape: outermost first. The offset is where the data goes, unless given.
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& shape, formats::GgmlType type,
                    const std::string& data, int64_t offset = -1) {
    table_ += gguf_string(name) + raw(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) table_ += raw(shape[i]);
    table_ +=
        raw(static_cast<uint32_t>(type)) + raw(offset < 0 ? uint64_t{data_.size()} : static_cast<uint64_t>(offset));
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
    return *this;
  }
  GgufBytes& floats(std::string_view name, const std::vector<uint64_t>& shape, const std::vector<float>& values) {
    return tensor(name, shape, formats::GgmlType::F32,
                  std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }

  std::string bytes() const {
    std::string file =
        "GGUF" + raw(version) + raw(tensor_count_ + extra_tensors) + raw(pair_count_ + extra_values) + pairs_ + table_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }
  std::filesystem::path write(const std::filesystem::path& path) const {
    write_file(path, bytes());
    return path;
  }

 private:
  std::string pairs_, table_, data_;
  uint64_t pair_count_ = 0, tensor_count_ = 0;
};

}  // namespace pacer::test
