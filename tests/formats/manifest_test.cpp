#include "pacer/formats/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "tests/formats/mutation.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ManifestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(path() / "weights.bin", "some weights");
    fs::create_directory(path() / "rank0");
    write_file(path() / "rank0" / "state.bin", std::string(1000, 's'));
    write_file(path() / "empty", "");
    Manifest manifest;
    manifest.schema = "pacer.test";
    manifest.version = 2;
    manifest.fingerprints["tokenizer"] = fingerprint("vocabulary");
    manifest.details = {{"step", 7}};
    write_manifest(path(), manifest);
  }

  const fs::path& path() const { return folder_.path(); }

  std::string refusal(ManifestCheck check = ManifestCheck::sizes, int64_t newest = 2,
                      const std::string& schema = "pacer.test") {
    try {
      read_manifest(path(), schema, newest, check);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  // Changes one member of manifest.json.
  template <typename Change>
  void rewrite(Change change) {
    Json json = read_json(path() / "manifest.json");
    change(json);
    write_file(path() / "manifest.json", json.dump());
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(ManifestTest, SaysWhatTheFolderHoldsAndWhatItWasMadeFrom) {
  const Manifest manifest = read_manifest(path(), "pacer.test", 3, ManifestCheck::checksums);
  ASSERT_EQ(manifest.files.size(), 3u);
  EXPECT_EQ(manifest.files[0].name, "empty");
  EXPECT_EQ(manifest.files[1].name, "rank0/state.bin");
  EXPECT_EQ(manifest.files[1].bytes, 1000u);
  EXPECT_EQ(manifest.version, 2);
  EXPECT_EQ(manifest.details["step"], 7);
  require_fingerprint(manifest, "here", "tokenizer", fingerprint("vocabulary"), "the tokenizer", "hint");
  EXPECT_THROW(require_fingerprint(manifest, "here", "tokenizer", fingerprint("other"), "the tokenizer", "hint"),
               Error);
  EXPECT_THROW(require_fingerprint(manifest, "here", "target", fingerprint("x"), "the target", "hint"), Error);
}

TEST_F(ManifestTest, ChecksumsAreTheKnownOnes) {
  EXPECT_EQ(fingerprint("123456789"), "crc32c:e3069283:9") << "the check value of CRC-32C";
  EXPECT_EQ(fingerprint_file(path() / "weights.bin"), fingerprint("some weights"));
}

TEST_F(ManifestTest, NoticesMissingShortAndChangedFiles) {
  EXPECT_EQ(refusal(), "no error");
  write_file(path() / "weights.bin", "same weights");
  EXPECT_EQ(refusal(), "no error") << "the size is the same";
  EXPECT_THAT(refusal(ManifestCheck::checksums), HasSubstr("weights.bin: checksum"));
  write_file(path() / "weights.bin", "some weight");
  EXPECT_THAT(refusal(), HasSubstr("11 bytes instead of 12"));
  fs::remove(path() / "weights.bin");
  EXPECT_THAT(refusal(), HasSubstr("not there"));
  fs::remove(path() / "manifest.json");
  EXPECT_THAT(refusal(), HasSubstr("no manifest.json"));
}

TEST_F(ManifestTest, RefusesOtherSchemasAndNewerVersions) {
  EXPECT_THAT(refusal(ManifestCheck::sizes, 1), HasSubstr("version 2, up to 1"));
  EXPECT_THAT(refusal(ManifestCheck::sizes, 2, "pacer.other"), HasSubstr("'pacer.other' is needed"));
}

TEST_F(ManifestTest, RefusesNamesThatLeaveTheFolderAndDamagedEntries) {
  rewrite([](Json& json) { json["files"][0]["name"] = "../outside"; });
  EXPECT_THAT(refusal(), HasSubstr("leads out of the folder"));
  rewrite([](Json& json) { json["files"][0]["name"] = 1; });
  EXPECT_THAT(refusal(), HasSubstr("'name'"));
  rewrite([](Json& json) { json["files"][0] = {{"name", "empty"}, {"bytes", 0u}, {"crc32c", "zz"}}; });
  EXPECT_THAT(refusal(), HasSubstr("'crc32c'"));
  rewrite([](Json& json) { json["files"] = "none"; });
  EXPECT_THAT(refusal(), HasSubstr("files"));
}

TEST_F(ManifestTest, DamagedManifestsLoadOrThrowAndNothingElse) {
  test::for_mutations(read_file(path() / "manifest.json"), 300, 4096, [&](const fs::path& damaged) {
    fs::copy_file(damaged, path() / "manifest.json", fs::copy_options::overwrite_existing);
    return read_manifest(path(), "pacer.test", 2, ManifestCheck::checksums).files.size();
  });
}

}  // namespace
}  // namespace pacer::formats
