// The JSON header of a safetensors file, read in one pass and without a document tree.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pacer/formats/dtype.h"

namespace pacer::formats {

struct SafetensorsEntry {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data section
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// data_bytes: size of the data section. The tensors must cover it exactly, without holes or overlap, as the format
// demands. Throws Error{format} naming place and tensor.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& place);

// Elements of a shape; throws Error{format} on a negative size or when the product exceeds 2^58.
uint64_t element_count(const std::vector<int64_t>& shape, const std::string& place);

}  // namespace pacer::formats
