#include "pacer/formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "pacer/base/error.h"
#include "pacer/formats/half.h"
#include "pacer/formats/tensor_source.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/formats/mutation.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

using test::GgufBytes;
using test::raw;
using ::testing::HasSubstr;

std::shared_ptr<const GgufFile> quant_types() {
  return GgufFile::open(test::golden("checkpoint_layouts/quant_types.gguf"));
}

Json expected_quant_types() { return test::golden_json("checkpoint_layouts/quant_types_expected.json"); }

std::string refusal(const std::string& bytes) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "made.gguf", bytes);
  try {
    GgufFile::open(folder.path() / "made.gguf");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    return error.what();
  }
  return "no error";
}

// Distance in units of the last place; floats of one sign are ordered like their bits.
int64_t ulps(float a, float b) {
  const auto ordered = [](float value) {
    const auto bits = std::bit_cast<int32_t>(value);
    return bits >= 0 ? int64_t{bits} : -int64_t{bits & 0x7FFFFFFF};
  };
  return std::abs(ordered(a) - ordered(b));
}

TEST(Gguf, ReadsEveryMetadataTypeAsTheReferenceWroteIt) {
  const auto file = quant_types();
  const Json expected = expected_quant_types();
  EXPECT_EQ(file->alignment(), expected["alignment"].get<uint64_t>());
  EXPECT_EQ(file->data_offset(), expected["data_offset"].get<uint64_t>());
  for (const auto& [key, value] : expected["kv"].items()) {
    ASSERT_TRUE(file->has(key)) << key;
    const Json found = to_json(file->value(key));
    const std::string& type = expected["kv_types"][key][0].get_ref<const std::string&>();
    if (type == "UINT64" || type == "INT64") {  // strings in the expectation, which JavaScript-like readers can hold
      EXPECT_EQ(found.dump(), value.get<std::string>()) << key;
    } else {
      EXPECT_EQ(found, value) << key;
    }
  }
}

TEST(Gguf, ListsTensorsRowMajorWithTheirPlaces) {
  const auto file = quant_types();
  const Json expected = expected_quant_types()["tensors"];
  ASSERT_EQ(file->tensors().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const GgufTensor& tensor = file->tensors()[i];
    std::vector<int64_t> shape = expected[i]["ggml_shape"].get<std::vector<int64_t>>();
    std::reverse(shape.begin(), shape.end());
    EXPECT_EQ(tensor.name, expected[i]["name"].get<std::string>());
    EXPECT_EQ(ggml_layout(tensor.type).name, expected[i]["type"].get<std::string>());
    EXPECT_EQ(tensor.shape, shape);
    EXPECT_EQ(tensor.offset, expected[i]["data_offset"].get<uint64_t>());
    EXPECT_EQ(tensor.bytes.size(), expected[i]["n_bytes"].get<uint64_t>());
  }
}

TEST(Gguf, DequantizesEveryTypeToOneUlp) {
  const auto file = quant_types();
  const auto expected = SafetensorsFile::open(test::golden("checkpoint_layouts/quant_types_expected.safetensors"));
  size_t compared = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    ASSERT_TRUE(expected->has(tensor.name)) << tensor.name;
    const TensorView view = expected->tensor(tensor.name);
    const std::vector<float> values = file->dequantize(tensor.name);
    ASSERT_EQ(values.size() * item_size(view.dtype), view.bytes.size()) << tensor.name;
    for (size_t i = 0; i < values.size(); ++i) {
      const std::byte* at = view.bytes.data() + i * item_size(view.dtype);
      float wanted = 0;
      if (view.dtype == DType::F64) {
        wanted = static_cast<float>(*reinterpret_cast<const double*>(at));
      } else if (view.dtype == DType::I32) {
        wanted = static_cast<float>(*reinterpret_cast<const int32_t*>(at));
      } else {
        ASSERT_EQ(view.dtype, DType::F32);
        wanted = *reinterpret_cast<const float*>(at);
      }
      ASSERT_LE(ulps(values[i], wanted), 1) << tensor.name << " value " << i << ": " << values[i] << ", " << wanted;
      compared += 1;
    }
  }
  EXPECT_GT(compared, 40'000u);
}

TEST(Gguf, RowsAreThoseOfTheWholeTensor) {
  const auto file = quant_types();
  for (const std::string name : {"Q6_K.weight", "IQ4_NL.weight", "three_d"}) {
    const GgufTensor& tensor = file->tensor(name);
    const std::vector<float> all = file->dequantize(name);
    const auto width = static_cast<size_t>(tensor.width());
    std::vector<float> rows(2 * width);
    file->dequantize_rows(name, 3, 2, rows);
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + static_cast<std::ptrdiff_t>(3 * width))) << name;
    EXPECT_THROW(file->dequantize_rows(name, tensor.rows() - 1, 2, rows), Error);
  }
}

TEST(Gguf, GettersRefuseWrongTypesAndNameTheKey) {
  const auto file = quant_types();
  const auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what() + ("|" + error.hint());
    }
    return "no error";
  };
  EXPECT_EQ(file->integer("t.u8"), to_json(file->value("t.u8")).get<int64_t>());
  EXPECT_THAT(message([&] { file->integer("t.f32"); }), HasSubstr("'t.f32' is of type f32, an integer"));
  EXPECT_THAT(message([&] { file->number("t.u8"); }), HasSubstr("'t.u8'"));
  EXPECT_THAT(message([&] { file->boolean("t.u8"); }), HasSubstr("a boolean"));
  EXPECT_THAT(message([&] { file->text("t.arr_str"); }), HasSubstr("array of string"));
  EXPECT_THAT(message([&] { file->texts("t.arr_i32"); }), HasSubstr("array of i32"));
  EXPECT_THAT(message([&] { file->integer("t.u64"); }), HasSubstr("too large"));
  EXPECT_THAT(message([&] { file->integer("t.u9"); }), HasSubstr("'t.u8'")) << "the nearest key";
  EXPECT_EQ(file->find_integer("absent"), std::nullopt);
  EXPECT_THAT(message([&] { file->find_integer("t.str"); }), HasSubstr("'t.str'")) << "present but wrong is no absence";
  EXPECT_EQ(file->texts("t.arr_str").size(), expected_quant_types()["kv"]["t.arr_str"].size());
  EXPECT_THAT(message([&] { file->tensor("Q6_K.wieght"); }), HasSubstr("'Q6_K.weight'"));
}

TEST(Gguf, VersionTwoIsReadAndOthersAreNamed) {
  GgufBytes made;
  made.u32("a", 7).floats("t", {2, 1}, {1, 2});
  made.version = 2;
  EXPECT_EQ(refusal(made.bytes()), "no error");
  made.version = 1;
  EXPECT_THAT(refusal(made.bytes()), HasSubstr("version 1"));
  made.version = 3u << 24;
  EXPECT_THAT(refusal(made.bytes()), HasSubstr("big-endian"));
  EXPECT_THAT(refusal(std::string(64, 'x')), HasSubstr("not a GGUF file"));
}

TEST(Gguf, LiesAboutSizesAreRefusedBeforeAnythingIsAllocated) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  const std::string array = raw(static_cast<uint32_t>(GgufType::Array));
  const std::string u8 = raw(static_cast<uint32_t>(GgufType::U8));
  GgufBytes counts;
  counts.extra_values = kHuge;
  EXPECT_THAT(refusal(counts.bytes()), HasSubstr("metadata entries"));
  counts.extra_values = 0, counts.extra_tensors = kHuge;
  EXPECT_THAT(refusal(counts.bytes()), HasSubstr("tensors in"));
  EXPECT_THAT(refusal(GgufBytes().pair("k", GgufType::String, raw(kHuge)).bytes()), HasSubstr("string at byte"));
  EXPECT_THAT(refusal(GgufBytes().pair("k", GgufType::Array, u8 + raw(kHuge)).bytes()), HasSubstr("an array of"));
  EXPECT_THAT(refusal(GgufBytes().pair("k", static_cast<GgufType>(99), "").bytes()), HasSubstr("value type 99"));
  EXPECT_THAT(refusal(GgufBytes().pair("k", GgufType::Bool, "\x02").bytes()), HasSubstr("a boolean of 2"));
  std::string nested;
  for (int depth = 0; depth < 100'000; ++depth) nested += array + raw<uint64_t>(1);
  EXPECT_THAT(refusal(GgufBytes().pair("k", GgufType::Array, nested + u8 + raw<uint64_t>(0)).bytes()),
              HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(GgufBytes().u32("k", 1).u32("k", 2).bytes()), HasSubstr("occurs twice"));
  EXPECT_THAT(refusal(GgufBytes().u32("general.alignment", 24).bytes()), HasSubstr("alignment"));
  EXPECT_THAT(refusal(GgufBytes().tensor("t", {kHuge, 2}, GgmlType::F32, "").bytes()), HasSubstr("cannot hold"));
  EXPECT_THAT(refusal(GgufBytes().tensor("t", {0, 4}, GgmlType::F32, "").bytes()), HasSubstr("a dimension of 0"));
  EXPECT_THAT(refusal(GgufBytes().tensor("t", {1, 1, 1, 1, 1}, GgmlType::F32, "").bytes()), HasSubstr("5 dimensions"));
  EXPECT_THAT(refusal(GgufBytes().tensor("t", {33}, GgmlType::Q8_0, std::string(68, 'x')).bytes()),
              HasSubstr("multiples of 32"));
  EXPECT_THAT(refusal(GgufBytes().tensor("t", {1}, static_cast<GgmlType>(4), "abcd").bytes()),
              HasSubstr("type number 4"));
  EXPECT_THAT(refusal(GgufBytes().tensor("t", {8}, GgmlType::F32, std::string(32, 'x'), 32).bytes()),
              HasSubstr("of a data section of 32"));
  EXPECT_THAT(refusal(GgufBytes().tensor("t", {1}, GgmlType::F32, "abcd", 7).bytes()), HasSubstr("multiple of 32"));
  GgufBytes twice;
  twice.floats("t", {1}, {1}).floats("t", {1}, {1});
  EXPECT_THAT(refusal(twice.bytes()), HasSubstr("'t' occurs twice"));
  GgufBytes overlap;
  overlap.floats("a", {1}, {1}).tensor("b", {1}, GgmlType::F32, "abcd", 0);
  EXPECT_THAT(refusal(overlap.bytes()), HasSubstr("overlap"));
}

TEST(Gguf, ATypeThatIsOnlyKnownByNameIsListedButNotRead) {
  const test::TemporaryFolder folder;
  const auto file = GgufFile::open(
      GgufBytes().tensor("t", {256}, GgmlType::IQ2_XXS, std::string(66, 'x')).write(folder.path() / "made.gguf"));
  try {
    file->dequantize("t");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'t' is of type IQ2_XXS"));
    EXPECT_FALSE(error.hint().empty());
  }
}

TEST(Gguf, DamagedFilesLoadOrThrowAndNothingElse) {
  test::for_mutations(read_file(test::golden("checkpoint_layouts/quant_types.gguf")), 1500, /*region=*/2200,
                      [](const std::filesystem::path& path) {
                        const auto file = GgufFile::open(path);
                        for (const std::string& key : file->keys()) to_json(file->value(key)).size();
                        double sum = 0;
                        for (const GgufTensor& tensor : file->tensors()) {
                          if (can_dequantize(tensor.type)) sum += file->dequantize(tensor.name).front();
                        }
                        return static_cast<uint64_t>(std::isfinite(sum));
                      });
}

}  // namespace
}  // namespace pacer::formats
