#include "tests/support/files.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace pacer::test {

namespace fs = std::filesystem;

fs::path source_dir() { return PACER_SOURCE_DIR; }

fs::path golden(const std::string& name) { return source_dir() / "tests" / "golden" / name; }

nlohmann::json golden_json(const std::string& name) {
  std::ifstream file(golden(name));
  if (!file) throw std::runtime_error("no golden file " + golden(name).string());
  return nlohmann::json::parse(file);
}

std::vector<nlohmann::json> golden_jsonl(const std::string& name) {
  std::ifstream file(golden(name));
  if (!file) throw std::runtime_error("no golden file " + golden(name).string());
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) rows.push_back(nlohmann::json::parse(line));
  }
  return rows;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "pacer-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a left-over folder in /tmp harms nothing
  fs::remove_all(path_, ignored);
}

std::optional<fs::path> package(const std::string& name) {
  // The script prints the folder as its last line; a second call costs a few milliseconds.
  const std::string command = "\"" + (source_dir() / "tools" / "fetch.sh").string() + "\" --quiet " + name;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string output;
  char buffer[4096];
  while (size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  if (::pclose(pipe) != 0) return std::nullopt;
  while (!output.empty() && output.back() == '\n') output.pop_back();
  const size_t line = output.rfind('\n');
  return fs::path(line == std::string::npos ? output : output.substr(line + 1));
}

bool packages_required() {
  const char* value = std::getenv("PACER_REQUIRE_PACKAGES");
  return value != nullptr && std::string(value) == "1";
}

}  // namespace pacer::test
