// Entries of docs/known_failures.md about weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/formats/tensor_source.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void copy_shards(const fs::path& to) { fs::copy(test::golden("llama_tiny/tied_sharded"), to); }

Error refusal(const fs::path& folder) {
  try {
    open_safetensors(folder);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::bug, "no error");
}

TEST(FormatsReports, Report54EveryMissingShardIsNamed) {
  const test::TemporaryFolder folder;
  const fs::path model = folder.path() / "m";
  copy_shards(model);
  fs::remove(model / "model-00002-of-00004.safetensors");
  fs::remove(model / "model-00004-of-00004.safetensors");
  const Error error = refusal(model);
  EXPECT_EQ(error.kind(), ErrorKind::data);
  EXPECT_THAT(error.what(), HasSubstr("2 of 4 files are not there: 'model-00002-of-00004.safetensors', "
                                      "'model-00004-of-00004.safetensors'"));
  EXPECT_THAT(error.hint(), HasSubstr("fetch the folder again"));
}

TEST(FormatsReports, Report55TheIndexDecides) {
  const test::TemporaryFolder folder;
  const fs::path model = folder.path() / "m";
  copy_shards(model);
  fs::copy_file(test::golden("llama_tiny/default/model.safetensors"), model / "model.safetensors");
  std::string heard;
  set_log_sink([&](LogLevel, std::string_view line) { heard += line; });
  const auto source = open_safetensors(model);
  set_log_sink({});
  EXPECT_FALSE(source->has("lm_head.weight")) << "the stray file has one";
  EXPECT_THAT(heard, HasSubstr("model.safetensors is not read"));

  write_file(model / "model.safetensors.index.json", R"({"weight_map": {"a": "of-another-version.safetensors"}})");
  EXPECT_THAT(refusal(model).hint(), HasSubstr("remove the index"));
}

}  // namespace
}  // namespace pacer::formats
