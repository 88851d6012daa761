#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/formats/tensor_source.h"
#include "tests/formats/mutation.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A file from a header in words and a number of data bytes.
fs::path file_of(const test::TemporaryFolder& folder, const std::string& header, size_t data_bytes) {
  std::string content(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(content.data(), &length, 8);
  content += header;
  for (size_t i = 0; i < data_bytes; ++i) content.push_back(static_cast<char>(i));
  const fs::path path = folder.path() / "made.safetensors";
  write_file(path, content);
  return path;
}

std::string message_of(const std::string& header, size_t data_bytes) {
  const test::TemporaryFolder folder;
  try {
    SafetensorsFile::open(file_of(folder, header, data_bytes));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    return error.what();
  }
  return "no error";
}

TEST(Safetensors, ReadsWhatTheReferenceWroteAndWritesItBackBitForBit) {
  const auto source = SafetensorsFile::open(test::golden("checkpoint_layouts/quant_types_expected.safetensors"));
  ASSERT_FALSE(source->names().empty());
  std::vector<NamedTensor> tensors;
  for (const std::string& name : source->names()) tensors.push_back({name, source->tensor(name)});
  const test::TemporaryFolder folder;
  write_safetensors(folder.path() / "copy.safetensors", tensors, {{"format", "pt"}, {"quote", "\"\n"}});

  const auto copy = SafetensorsFile::open(folder.path() / "copy.safetensors");
  EXPECT_EQ(copy->names(), source->names());
  EXPECT_EQ(copy->metadata().at("quote"), "\"\n");
  for (const std::string& name : source->names()) {
    const TensorView a = source->tensor(name), b = copy->tensor(name);
    EXPECT_EQ(a.dtype, b.dtype) << name;
    EXPECT_EQ(a.shape, b.shape) << name;
    EXPECT_TRUE(std::ranges::equal(a.bytes, b.bytes)) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.bytes.data()) % item_size(b.dtype), 0u) << name;
  }
}

TEST(Safetensors, MixedWidthsStayAlignedAndEmptyTensorsAndScalarsSurvive) {
  const std::array<double, 1> wide{1.5};
  const std::array<uint8_t, 3> narrow{1, 2, 3};
  const test::TemporaryFolder folder;
  write_safetensors(folder.path() / "mixed.safetensors",
                    {{"bytes", {DType::U8, {3}, std::as_bytes(std::span(narrow))}},
                     {"empty", {DType::F32, {0, 7}, {}}},
                     {"scalar", {DType::F64, {}, std::as_bytes(std::span(wide))}}});
  const auto file = SafetensorsFile::open(folder.path() / "mixed.safetensors");
  const TensorView scalar = file->tensor("scalar");
  EXPECT_TRUE(scalar.shape.empty());
  EXPECT_EQ(*reinterpret_cast<const double*>(scalar.bytes.data()), wide[0]);
  EXPECT_EQ(file->tensor("empty").shape, (std::vector<int64_t>{0, 7}));
  EXPECT_TRUE(std::ranges::equal(file->tensor("bytes").bytes, std::as_bytes(std::span(narrow))));
}

TEST(Safetensors, MisplacedDataOfEarlyWritersIsReadThroughAnAlignedCopy) {
  const test::TemporaryFolder folder;
  const auto file = SafetensorsFile::open(file_of(
      folder,
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})",
      9));
  const TensorView view = file->tensor("b");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.bytes.data()) % 8, 0u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(std::to_integer<size_t>(view.bytes[i]), i + 1);
  EXPECT_EQ(file->tensor("b").bytes.data(), view.bytes.data()) << "one copy, however often it is asked for";
}

TEST(Safetensors, AFolderOfShardsIsOneSource) {
  const auto sharded = open_safetensors(test::golden("llama_tiny/tied_sharded"));
  const nlohmann::json index = test::golden_json("llama_tiny/tied_sharded/model.safetensors.index.json");
  EXPECT_EQ(sharded->names().size(), index["weight_map"].size());
  uint64_t bytes = 0;
  for (const std::string& name : sharded->names()) bytes += sharded->tensor(name).bytes.size();
  EXPECT_EQ(bytes, index["metadata"]["total_size"].get<uint64_t>());
  EXPECT_FALSE(sharded->has("lm_head.weight"));
}

TEST(Safetensors, AnIndexThatLeavesItsFolderOrLiesIsRefused) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const std::string& index) -> std::string {
    write_file(folder.path() / "model.safetensors.index.json", index);
    try {
      open_safetensors(folder.path());
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  file_of(folder, R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"made.safetensors"}})"), "no error");
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"../made.safetensors"}})"), HasSubstr("leads out of the folder"));
  EXPECT_THAT(refusal(R"({"weight_map":{"b":"made.safetensors"}})"), HasSubstr("tensor 'b' is not in"));
  EXPECT_THAT(refusal(R"({"weight_map":{"b":7}})"), HasSubstr("'b'"));
  EXPECT_THAT(refusal(R"([])"), HasSubstr("weight_map"));
}

TEST(Safetensors, HeadersThatLieAreRefusedBySayingWhatIsWrong) {
  EXPECT_EQ(message_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "no error");
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7),
              HasSubstr("bytes 0 to 8 of 7"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9),
              HasSubstr("belong to no tensor"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), HasSubstr("need 12"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
              HasSubstr("too many elements"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", 8), HasSubstr("'a'"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), HasSubstr("'F33'"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8), HasSubstr("'more'"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), HasSubstr("missing"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]}})", 8), HasSubstr("'a'"));
  EXPECT_THAT(
      message_of(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
          3),
      HasSubstr("the one before ends at 2"));
  EXPECT_THAT(
      message_of(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
          2),
      HasSubstr("twice"));
  EXPECT_THAT(message_of(R"({"__metadata__":{"a":{}}})", 0), HasSubstr("an object"));
  EXPECT_THAT(message_of(std::string(100'000, '['), 0), HasSubstr("a list"));
  EXPECT_THAT(message_of(R"({"a":)", 0), HasSubstr("not valid JSON"));
}

TEST(Safetensors, AMissingNameListsItsNeighbours) {
  const auto file = SafetensorsFile::open(test::golden("llama_tiny/default/model.safetensors"));
  try {
    file->tensor("model.layers.1.mlp.upproj.weight");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.layers.1.mlp.upproj.weight"));
    EXPECT_THAT(error.hint(), HasSubstr("'model.layers.1.mlp.up_proj.weight'"));
  }
}

TEST(Safetensors, DamagedFilesLoadOrThrowAndNothingElse) {
  const std::string original = read_file(test::golden("llama_tiny/tied_sharded/model-00001-of-00004.safetensors"));
  test::for_mutations(original, 600, /*region=*/4096, [](const fs::path& path) {
    const auto file = SafetensorsFile::open(path);
    uint64_t sum = 0;
    for (const std::string& name : file->names()) {
      for (const std::byte byte : file->tensor(name).bytes) sum += std::to_integer<uint64_t>(byte);
    }
    return sum;
  });
}

}  // namespace
}  // namespace pacer::formats
