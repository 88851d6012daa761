#include "pacer/formats/dtype.h"

#include <array>

#include "pacer/base/error.h"

namespace pacer::formats {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<Entry, 15> kTypes{{{DType::F64, "F64", 8},
                                        {DType::F32, "F32", 4},
                                        {DType::F16, "F16", 2},
                                        {DType::BF16, "BF16", 2},
                                        {DType::F8_E4M3, "F8_E4M3", 1},
                                        {DType::F8_E5M2, "F8_E5M2", 1},
                                        {DType::I64, "I64", 8},
                                        {DType::I32, "I32", 4},
                                        {DType::I16, "I16", 2},
                                        {DType::I8, "I8", 1},
                                        {DType::U64, "U64", 8},
                                        {DType::U32, "U32", 4},
                                        {DType::U16, "U16", 2},
                                        {DType::U8, "U8", 1},
                                        {DType::BOOL, "BOOL", 1}}};

const Entry& entry(DType dtype) {
  for (const Entry& candidate : kTypes) {
    if (candidate.dtype == dtype) return candidate;
  }
  throw Error(ErrorKind::bug, "element type " + std::to_string(static_cast<int>(dtype)) + " is not in the table");
}

}  // namespace

size_t item_size(DType dtype) { return entry(dtype).size; }

std::string_view dtype_name(DType dtype) { return entry(dtype).name; }

DType parse_dtype(std::string_view name, const std::string& place) {
  std::string allowed;
  for (const Entry& candidate : kTypes) {
    if (candidate.name == name) return candidate.dtype;
    allowed += (allowed.empty() ? "" : ", ") + std::string(candidate.name);
  }
  throw Error(ErrorKind::format,
              place + ": element type '" + std::string(name.substr(0, 40)) + "', known are " + allowed,
              "convert the tensor to one of these");
}

}  // namespace pacer::formats
