#include <algorithm>
#include <bit>
#include <cstring>

#include "pacer/base/error.h"
#include "pacer/formats/gguf.h"

namespace pacer::formats {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr int kMaxDepth = 8;
constexpr uint64_t kMaxKey = 65535;            // by the format
constexpr uint64_t kAnyLength = ~uint64_t{0};  // the file is limit enough
constexpr uint64_t kMaxName = 1024;            // the reference implementation stops at 64
constexpr uint32_t kMaxDimensions = 4;         // of ggml
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;

size_t fixed_size(GgufType type) {  // 0: no fixed size
  switch (type) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::Bool:
      return 1;
    case GgufType::U16:
    case GgufType::I16:
      return 2;
    case GgufType::U32:
    case GgufType::I32:
    case GgufType::F32:
      return 4;
    case GgufType::U64:
    case GgufType::I64:
    case GgufType::F64:
      return 8;
    case GgufType::String:
    case GgufType::Array:
      return 0;
  }
  return 0;
}

template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

GgufValue scalar(GgufType type, const std::byte* bytes) {
  switch (type) {
    case GgufType::U8:
      return {type, uint64_t{load<uint8_t>(bytes)}};
    case GgufType::I8:
      return {type, int64_t{load<int8_t>(bytes)}};
    case GgufType::U16:
      return {type, uint64_t{load<uint16_t>(bytes)}};
    case GgufType::I16:
      return {type, int64_t{load<int16_t>(bytes)}};
    case GgufType::U32:
      return {type, uint64_t{load<uint32_t>(bytes)}};
    case GgufType::I32:
      return {type, int64_t{load<int32_t>(bytes)}};
    case GgufType::F32:
      return {type, double{load<float>(bytes)}};
    case GgufType::U64:
      return {type, load<uint64_t>(bytes)};
    case GgufType::I64:
      return {type, load<int64_t>(bytes)};
    case GgufType::F64:
      return {type, load<double>(bytes)};
    case GgufType::Bool:
      return {type, load<uint8_t>(bytes) != 0};
    case GgufType::String:
    case GgufType::Array:
      break;
  }
  throw Error(ErrorKind::bug, "a GGUF value that is no scalar");
}

}  // namespace

GgufValue GgufArray::at(uint64_t index) const {
  if (index >= size) throw Error(ErrorKind::bug, "GGUF array: index out of range");
  if (element_type == GgufType::String) return {element_type, strings[index]};
  if (element_type == GgufType::Array) return arrays[index];
  return scalar(element_type, numbers.data() + index * fixed_size(element_type));
}

// A cursor that never leaves the file.
class GgufReader {
 public:
  explicit GgufReader(GgufFile& file) : file_(file), bytes_(file.file_->bytes()) {}

  void read() {
    read_header();
    for (uint64_t i = 0; i < value_count_; ++i) read_pair();
    if (const std::optional<int64_t> alignment = file_.find_integer("general.alignment")) {
      const auto value = static_cast<uint64_t>(*alignment);
      if (*alignment <= 0 || !std::has_single_bit(value) || value > kMaxAlignment) {
        fail("general.alignment is " + std::to_string(*alignment) + ", a power of two up to a mebibyte is allowed");
      }
      file_.alignment_ = value;
    }
    for (uint64_t i = 0; i < tensor_count_; ++i) read_tensor();
    place_tensors();
  }

 private:
  [[noreturn]] void fail(const std::string& what,
                         const std::string& hint = "the file is damaged; fetch it again") const {
    throw Error(ErrorKind::format, file_.place() + ": " + what, hint);
  }

  uint64_t left() const { return bytes_.size() - at_; }

  const std::byte* take(uint64_t count, const char* what) {
    if (count > left()) {
      fail(std::string(what) + " at byte " + std::to_string(at_) + " needs " + std::to_string(count) + " bytes, " +
               std::to_string(left()) + " are left",
           "the file was cut off or is damaged; fetch it again");
    }
    const std::byte* start = bytes_.data() + at_;
    at_ += count;
    return start;
  }

  template <typename T>
  T take_number(const char* what) {
    return load<T>(take(sizeof(T), what));
  }

  std::string_view take_string(uint64_t most, const char* what) {
    const auto length = take_number<uint64_t>(what);
    if (length > most)
      fail(std::string(what) + " of " + std::to_string(length) + " bytes, at most " + std::to_string(most) +
           " are allowed");
    return {reinterpret_cast<const char*>(take(length, what)), length};
  }

  void read_header() {
    if (bytes_.size() < 24 || load<uint32_t>(bytes_.data()) != kMagic) fail("not a GGUF file", "give a .gguf file");
    at_ = 4;
    file_.version_ = take_number<uint32_t>("version");
    if (file_.version_ != 2 && file_.version_ != 3) {
      const bool swapped = (file_.version_ & 0xFFFF) == 0;
      fail(swapped ? "a big-endian GGUF file" : "GGUF version " + std::to_string(file_.version_) + ", 2 and 3 are read",
           "convert the model with a current llama.cpp on a little-endian machine");
    }
    tensor_count_ = take_number<uint64_t>("tensor count");
    value_count_ = take_number<uint64_t>("metadata count");
    // Smallest possible entries: an empty key with a byte, and a tensor without name and dimensions.
    constexpr uint64_t kSmallestPair = 8 + 4 + 1, kSmallestTensor = 8 + 4 + 4 + 8;
    if (value_count_ > left() / kSmallestPair || tensor_count_ > left() / kSmallestTensor) {
      fail(std::to_string(value_count_) + " metadata entries and " + std::to_string(tensor_count_) + " tensors in " +
           std::to_string(bytes_.size()) + " bytes");
    }
  }

  GgufType take_type() {
    const auto number = take_number<uint32_t>("value type");
    if (number > static_cast<uint32_t>(GgufType::F64)) {
      fail("key '" + key_ + "': value type " + std::to_string(number) + " is not known");
    }
    return static_cast<GgufType>(number);
  }

  GgufValue take_value(GgufType type, int depth) {
    if (type == GgufType::String) return {type, take_string(kAnyLength, "string")};
    if (type == GgufType::Array) return {type, take_array(depth + 1)};
    const std::byte* bytes = take(fixed_size(type), "value");
    if (type == GgufType::Bool) check_booleans({bytes, 1});
    return scalar(type, bytes);
  }

  std::shared_ptr<const GgufArray> take_array(int depth) {
    if (depth > kMaxDepth) fail("key '" + key_ + "': arrays nested deeper than " + std::to_string(kMaxDepth));
    auto array = std::make_shared<GgufArray>();
    array->element_type = take_type();
    array->size = take_number<uint64_t>("array length");
    const uint64_t smallest = array->element_type == GgufType::Array    ? 12
                              : array->element_type == GgufType::String ? 8
                                                                        : fixed_size(array->element_type);
    if (array->size > left() / smallest) {
      fail("key '" + key_ + "': an array of " + std::to_string(array->size) + " elements with " +
           std::to_string(left()) + " bytes left");
    }
    if (array->element_type == GgufType::String) {
      array->strings.reserve(array->size);
      for (uint64_t i = 0; i < array->size; ++i) array->strings.push_back(take_string(kAnyLength, "string"));
    } else if (array->element_type == GgufType::Array) {
      array->arrays.reserve(array->size);
      for (uint64_t i = 0; i < array->size; ++i) array->arrays.push_back(take_value(GgufType::Array, depth));
    } else {
      const uint64_t size = array->size * smallest;
      array->numbers = {take(size, "array"), size};
      if (array->element_type == GgufType::Bool) check_booleans(array->numbers);
    }
    return array;
  }

  void check_booleans(std::span<const std::byte> values) const {
    for (const std::byte value : values) {
      if (value > std::byte{1}) fail("key '" + key_ + "': a boolean of " + std::to_string(std::to_integer<int>(value)));
    }
  }

  void read_pair() {
    const std::string_view key = take_string(kMaxKey, "key");
    key_ = std::string(key);
    if (!file_.values_.emplace(key, take_value(take_type(), 0)).second) fail("the key '" + key_ + "' occurs twice");
    file_.keys_.push_back(key_);
  }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = std::string(take_string(kMaxName, "tensor name"));
    const std::string where = file_.place() + ": tensor '" + tensor.name + "'";
    const auto dimensions = take_number<uint32_t>("tensor dimensions");
    if (dimensions > kMaxDimensions) {
      fail("tensor '" + tensor.name + "' has " + std::to_string(dimensions) + " dimensions, at most " +
           std::to_string(kMaxDimensions) + " are allowed");
    }
    uint64_t values = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
      const auto size = take_number<uint64_t>("tensor shape");
      // The densest type packs six values into a byte, so this refuses only lies; it also keeps products from
      // overflowing.
      if (size == 0 || size > bytes_.size() * 16 || values > bytes_.size() * 16 / size) {
        fail("tensor '" + tensor.name + "' has a dimension of " + std::to_string(size) +
             ", which the file cannot hold");
      }
      values *= size;
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    const GgmlLayout& layout = ggml_layout(take_number<uint32_t>("tensor type"), where);
    tensor.type = layout.type;
    if (static_cast<uint64_t>(tensor.width()) % layout.block_values != 0) {
      fail("tensor '" + tensor.name + "': rows of " + std::to_string(tensor.width()) + " values, type " +
           std::string(layout.name) + " needs multiples of " + std::to_string(layout.block_values));
    }
    tensor.offset = take_number<uint64_t>("tensor offset");
    sizes_.push_back(values / layout.block_values * layout.block_bytes);
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      fail("the tensor '" + tensor.name + "' occurs twice");
    }
    file_.tensors_.push_back(std::move(tensor));
  }

  // Offsets in the table count from the data section, which begins at the next multiple of the alignment.
  void place_tensors() {
    const uint64_t alignment = file_.alignment_;
    file_.data_offset_ = (at_ + alignment - 1) / alignment * alignment;
    const uint64_t data = bytes_.size() - std::min<uint64_t>(file_.data_offset_, bytes_.size());
    std::vector<std::pair<uint64_t, size_t>> order;
    for (size_t i = 0; i < file_.tensors_.size(); ++i) {
      GgufTensor& tensor = file_.tensors_[i];
      if (tensor.offset % alignment != 0) {
        fail("tensor '" + tensor.name + "' begins at " + std::to_string(tensor.offset) + ", not a multiple of " +
             std::to_string(alignment));
      }
      if (tensor.offset > data || sizes_[i] > data - tensor.offset) {
        fail("tensor '" + tensor.name + "': " + std::to_string(sizes_[i]) + " bytes at " +
                 std::to_string(tensor.offset) + " of a data section of " + std::to_string(data),
             "the file was cut off; fetch it again");
      }
      tensor.offset += file_.data_offset_;
      tensor.bytes = bytes_.subspan(tensor.offset, sizes_[i]);
      order.emplace_back(tensor.offset, i);
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 1; i < order.size(); ++i) {
      const auto [before, previous] = order[i - 1];
      if (before + sizes_[previous] > order[i].first) {
        fail("the tensors '" + file_.tensors_[previous].name + "' and '" + file_.tensors_[order[i].second].name +
             "' overlap");
      }
    }
  }

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0, tensor_count_ = 0, value_count_ = 0;
  std::string key_;
  std::vector<uint64_t> sizes_;
};

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
  std::shared_ptr<GgufFile> file(new GgufFile);
  file->file_ = MappedFile::open(path);
  GgufReader(*file).read();
  return file;
}

}  // namespace pacer::formats
