#include "pacer/formats/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pacer/base/json.h"

namespace pacer::formats {
namespace {

constexpr size_t kMaxDimensions = 16;

// The grammar is two levels deep and fixed, so the handler is a small state machine; whatever does not fit is refused
// where it stands. Duplicate keys, which a document tree would silently merge, are seen here.
class HeaderReader {
 public:
  HeaderReader(SafetensorsHeader& header, std::string place) : header_(header), place_(std::move(place)) {}

  bool null() { return refuse("null"); }
  bool boolean(bool) { return refuse("a boolean"); }
  bool number_integer(Json::number_integer_t value) { return refuse("the number " + std::to_string(value)); }
  bool number_float(Json::number_float_t, const std::string& text) { return refuse("the number " + text); }
  bool binary(Json::binary_t&) { return refuse("binary data"); }

  bool number_unsigned(Json::number_unsigned_t value) {
    if (state_ == State::shape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail("a dimension of " + std::to_string(value));
      if (entry_.shape.size() == kMaxDimensions) fail("more than " + std::to_string(kMaxDimensions) + " dimensions");
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else if (state_ == State::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      return refuse("the number " + std::to_string(value));
    }
    return true;
  }

  bool string(std::string& value) {
    if (state_ == State::metadata) {
      if (!header_.metadata.emplace(field_, value).second) fail("the key '" + field_ + "' twice");
    } else if (state_ == State::tensor && field_ == "dtype") {
      entry_.dtype = parse_dtype(value, where());
      field_.clear();
    } else {
      return refuse("a string");
    }
    return true;
  }

  bool start_object(size_t) {
    if (state_ == State::start) {
      state_ = State::top;
    } else if (state_ == State::top) {
      state_ = name_ == "__metadata__" ? State::metadata : State::tensor;
      entry_ = {};
      offsets_ = 0;
      seen_ = 0;
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool end_object() {
    if (state_ == State::top) {
      state_ = State::done;
      return true;
    }
    if (state_ == State::tensor) {
      if (seen_ != 7) fail("dtype, shape or data_offsets is missing");
      header_.tensors[name_] = std::move(entry_);
    }
    state_ = State::top;
    return true;
  }

  bool key(std::string& value) {
    if (state_ == State::top) {
      name_ = std::move(value);
      if (name_ == "__metadata__" ? std::exchange(has_metadata_, true) : header_.tensors.contains(name_)) {
        fail("the name occurs twice");
      }
      return true;
    }
    field_ = std::move(value);
    if (state_ == State::metadata) return true;
    const unsigned bit = field_ == "dtype" ? 1 : field_ == "shape" ? 2 : field_ == "data_offsets" ? 4 : 0;
    if (bit == 0) fail("the field '" + field_.substr(0, 100) + "'; known are dtype, shape and data_offsets");
    if ((seen_ & bit) != 0) fail("the field '" + field_ + "' twice");
    seen_ |= bit;
    return true;
  }

  bool start_array(size_t) {
    if (state_ == State::tensor && field_ == "shape") {
      state_ = State::shape;
    } else if (state_ == State::tensor && field_ == "data_offsets") {
      state_ = State::offsets;
    } else {
      return refuse("a list");
    }
    return true;
  }

  bool end_array() {
    if (state_ == State::offsets && offsets_ != 2) fail("data_offsets must be two numbers");
    state_ = State::tensor;
    field_.clear();
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const Json::exception&) {
    throw Error(ErrorKind::format, place_ + ": the header is not valid JSON at its byte " + std::to_string(byte),
                "the file is damaged or is not safetensors; fetch it again");
  }

 private:
  enum class State { start, top, metadata, tensor, shape, offsets, done };

  std::string where() const { return name_.empty() ? place_ : place_ + ": tensor '" + name_.substr(0, 200) + "'"; }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::format, where() + ": " + what, "the file is damaged or is not safetensors; fetch it again");
  }

  bool refuse(const std::string& found) {
    fail(found + " where the header of a safetensors file has none");
    return false;
  }

  SafetensorsHeader& header_;
  std::string place_;
  State state_ = State::start;
  std::string name_, field_;
  SafetensorsEntry entry_;
  int offsets_ = 0;
  unsigned seen_ = 0;
  bool has_metadata_ = false;
};

void check_cover(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& place) {
  std::vector<std::pair<std::pair<uint64_t, uint64_t>, const std::string*>> ranges;
  for (const auto& [name, entry] : header.tensors) {
    const std::string where = place + ": tensor '" + name + "'";
    const uint64_t bytes = element_count(entry.shape, where) * item_size(entry.dtype);
    if (entry.begin > entry.end || entry.end > data_bytes) {
      throw Error(ErrorKind::format,
                  where + ": bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) + " of " +
                      std::to_string(data_bytes),
                  "the file was cut off; fetch it again");
    }
    if (entry.end - entry.begin != bytes) {
      throw Error(ErrorKind::format, where + ": " + std::to_string(entry.end - entry.begin) +
                                         " bytes of data, its shape and type need " + std::to_string(bytes));
    }
    ranges.push_back({{entry.begin, entry.end}, &name});
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (const auto& [range, name] : ranges) {
    if (range.first != covered) {
      throw Error(ErrorKind::format,
                  place + ": tensor '" + *name + "' begins at byte " + std::to_string(range.first) +
                      ", the one before ends at " + std::to_string(covered),
                  "tensors must follow each other without overlap or holes");
    }
    covered = range.second;
  }
  if (covered != data_bytes) {
    throw Error(ErrorKind::format,
                place + ": " + std::to_string(data_bytes - covered) + " bytes at the end belong to no tensor",
                "the file is damaged; fetch it again");
  }
}

}  // namespace

uint64_t element_count(const std::vector<int64_t>& shape, const std::string& place) {
  constexpr uint64_t kMost = uint64_t{1} << 58;  // times eight bytes still fits
  uint64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) throw Error(ErrorKind::format, place + ": a dimension of " + std::to_string(size));
    if (size == 0) return 0;
    if (count > kMost / static_cast<uint64_t>(size)) throw Error(ErrorKind::format, place + ": too many elements");
    count *= static_cast<uint64_t>(size);
  }
  return count;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& place) {
  SafetensorsHeader header;
  HeaderReader reader(header, place);
  Json::sax_parse(json, &reader);
  check_cover(header, data_bytes, place);
  return header;
}

}  // namespace pacer::formats
