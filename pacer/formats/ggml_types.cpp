#include "pacer/formats/ggml_types.h"

#include <array>

#include "pacer/base/error.h"

namespace pacer::formats {
namespace {

using enum GgmlType;

constexpr std::array kLayouts{
    GgmlLayout{F32, "F32", 1, 4},
    GgmlLayout{F16, "F16", 1, 2},
    GgmlLayout{Q4_0, "Q4_0", 32, 18},
    GgmlLayout{Q4_1, "Q4_1", 32, 20},
    GgmlLayout{Q5_0, "Q5_0", 32, 22},
    GgmlLayout{Q5_1, "Q5_1", 32, 24},
    GgmlLayout{Q8_0, "Q8_0", 32, 34},
    GgmlLayout{Q8_1, "Q8_1", 32, 36},
    GgmlLayout{Q2_K, "Q2_K", 256, 84},
    GgmlLayout{Q3_K, "Q3_K", 256, 110},
    GgmlLayout{Q4_K, "Q4_K", 256, 144},
    GgmlLayout{Q5_K, "Q5_K", 256, 176},
    GgmlLayout{Q6_K, "Q6_K", 256, 210},
    GgmlLayout{Q8_K, "Q8_K", 256, 292},
    GgmlLayout{IQ2_XXS, "IQ2_XXS", 256, 66},
    GgmlLayout{IQ2_XS, "IQ2_XS", 256, 74},
    GgmlLayout{IQ3_XXS, "IQ3_XXS", 256, 98},
    GgmlLayout{IQ1_S, "IQ1_S", 256, 50},
    GgmlLayout{IQ4_NL, "IQ4_NL", 32, 18},
    GgmlLayout{IQ3_S, "IQ3_S", 256, 110},
    GgmlLayout{IQ2_S, "IQ2_S", 256, 82},
    GgmlLayout{IQ4_XS, "IQ4_XS", 256, 136},
    GgmlLayout{I8, "I8", 1, 1},
    GgmlLayout{I16, "I16", 1, 2},
    GgmlLayout{I32, "I32", 1, 4},
    GgmlLayout{I64, "I64", 1, 8},
    GgmlLayout{F64, "F64", 1, 8},
    GgmlLayout{IQ1_M, "IQ1_M", 256, 56},
    GgmlLayout{BF16, "BF16", 1, 2},
    GgmlLayout{TQ1_0, "TQ1_0", 256, 54},
    GgmlLayout{TQ2_0, "TQ2_0", 256, 66},
    GgmlLayout{MXFP4, "MXFP4", 32, 17},
};

}  // namespace

const GgmlLayout& ggml_layout(uint32_t type, const std::string& place) {
  for (const GgmlLayout& layout : kLayouts) {
    if (static_cast<uint32_t>(layout.type) == type) return layout;
  }
  throw Error(ErrorKind::format, place + ": tensor type number " + std::to_string(type) + " is not known",
              "the file is damaged or newer than this program; a Q8_0, Q4_K or F16 version will do");
}

const GgmlLayout& ggml_layout(GgmlType type) { return ggml_layout(static_cast<uint32_t>(type), "tensor type table"); }

}  // namespace pacer::formats
