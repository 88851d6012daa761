// Files of a megabyte that are built to cost as much as possible: what they may take is bounded.
#include <gtest/gtest.h>

#include <array>

#include "pacer/base/error.h"
#include "pacer/formats/gguf.h"
#include "pacer/formats/model_folder.h"
#include "pacer/formats/tensor_source.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/support/cost.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

using test::GgufBytes;
using test::raw;
namespace fs = std::filesystem;

constexpr size_t kMegabyte = size_t{1} << 20;

// Opens the file, which may succeed or throw Error, within the bounds.
template <typename Open>
void expect_cheap(Open open) {
  const test::MemoryWatch memory;
  const double start = test::cpu_seconds();
  try {
    open();
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::bug) << error.what();
  }
  EXPECT_LT(test::cpu_seconds() - start, 1.0);
  EXPECT_LT(memory.growth(), uint64_t{100} << 20);
}

void expect_cheap_gguf(const GgufBytes& made) {
  const test::TemporaryFolder folder;
  const fs::path path = made.write(folder.path() / "made.gguf");
  ASSERT_LT(fs::file_size(path), 3 * kMegabyte / 2);
  expect_cheap([&] {
    const auto file = GgufFile::open(path);
    for (const std::string& key : file->keys()) file->find(key);
    file->tensor("not there");
  });
}

std::string repeated(const std::string& piece, size_t bytes) {
  std::string text;
  text.reserve(bytes);
  while (text.size() + piece.size() <= bytes) text += piece;
  return text;
}

TEST(LyingFiles, ArraysOfNothing) {
  const std::string string_type = raw(static_cast<uint32_t>(GgufType::String));
  const std::string array_type = raw(static_cast<uint32_t>(GgufType::Array));
  const std::string empty_array = raw(static_cast<uint32_t>(GgufType::U8)) + raw<uint64_t>(0);
  expect_cheap_gguf(GgufBytes().pair("k", GgufType::Array,
                                     string_type + raw<uint64_t>(kMegabyte / 8) + std::string(kMegabyte, '\0')));
  expect_cheap_gguf(GgufBytes().pair(
      "k", GgufType::Array, array_type + raw<uint64_t>(kMegabyte / 12) + repeated(empty_array, kMegabyte / 12 * 12)));
}

TEST(LyingFiles, ManyKeysAndManyTensors) {
  GgufBytes keys, tensors;
  for (uint32_t i = 0; i < 55'000; ++i) keys.pair(raw(i).substr(0, 3), GgufType::U8, "x");
  expect_cheap_gguf(keys);
  for (uint32_t i = 0; i < 26'000; ++i) tensors.tensor(raw(i), {1}, GgufTensor().type, "", 32 * int64_t{i});
  expect_cheap_gguf(tensors);
}

TEST(LyingFiles, ATensorThatClaimsTheMostThatAFileCanHold) {
  // The densest readable type: what is allocated for its values is a small multiple of the file.
  GgufBytes made;
  made.tensor("t", {kMegabyte / 84 * 256}, GgmlType::Q2_K, std::string(kMegabyte / 84 * 84, 'x'));
  const test::TemporaryFolder folder;
  const fs::path path = made.write(folder.path() / "made.gguf");
  expect_cheap([&] { EXPECT_EQ(GgufFile::open(path)->dequantize("t").size(), kMegabyte / 84 * 256); });
}

TEST(LyingFiles, HeadersFullOfSmallThings) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "made.safetensors";
  std::string entries;
  for (size_t i = 0; entries.size() < kMegabyte; ++i) {
    entries += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  for (const std::string& header :
       {"{" + entries + "}", R"({"a":{"dtype":"U8","shape":[)" + repeated("0,", kMegabyte) + "0]}}",
        std::string(kMegabyte, '['), std::string(kMegabyte, ' '), "{" + repeated(R"("a":)", kMegabyte)}) {
    write_file(path, raw<uint64_t>(header.size()) + header);
    expect_cheap([&] { SafetensorsFile::open(path)->tensor("not there"); });
  }
}

TEST(LyingFiles, SettingsFullOfSmallThings) {
  const test::TemporaryFolder folder;
  const std::array<std::string, 4> contents{
      R"({"a":[)" + repeated("[],", kMegabyte) + "0]}", R"({"a":)" + std::string(kMegabyte, '['),
      R"({"a":[)" + repeated(R"({"":{}},)", kMegabyte) + "0]}",
      R"({"weight_map":{)" + repeated(R"("a":"config.json",)", kMegabyte) + R"("b":"config.json"}})"};
  for (const std::string& content : contents) {
    write_file(folder.path() / "config.json", content);
    write_file(folder.path() / "model.safetensors.index.json", content);
    expect_cheap([&] { ModelFolder::open(folder.path()); });
    expect_cheap([&] { open_safetensors(folder.path()); });
  }
}

}  // namespace
}  // namespace pacer::formats
