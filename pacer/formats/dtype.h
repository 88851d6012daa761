// Element types of tensor files, without torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pacer::formats {

enum class DType { F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8, BOOL };

size_t item_size(DType dtype);                                       // bytes
std::string_view dtype_name(DType dtype);                            // the spelling of safetensors: "F32", "BF16", ...
DType parse_dtype(std::string_view name, const std::string& place);  // throws Error{format}

}  // namespace pacer::formats
