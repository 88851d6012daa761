#include "tests/workflow/browser.h"

#include <cstdio>
#include <stdexcept>

#include "tests/support/files.h"

namespace pacer::workflow {
namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no shell");
  std::string output;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  ::pclose(pipe);
  return output;
}

}  // namespace

std::optional<std::string> find_browser() {
  const std::string found =
      output_of("command -v chromium || command -v chromium-browser || command -v google-chrome || true");
  if (found.empty()) return std::nullopt;
  return found.substr(0, found.find('\n'));
}

std::string title_in_browser(const std::string& browser, const std::filesystem::path& page, int width, bool dark) {
  const test::TemporaryFolder profile;  // so that two tests at once do not share one
  const std::string output = output_of(
      "timeout 120 '" + browser + "' --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars" +
      " --user-data-dir='" + profile.path().string() + "' --window-size=" + std::to_string(width) + ",2000" +
      (dark ? " --blink-settings=preferredColorScheme=0" : " --blink-settings=preferredColorScheme=1") +
      " --dump-dom 'file://" + page.string() + "' 2>/dev/null");
  const size_t begin = output.find("<title>"), end = output.find("</title>");
  if (begin == std::string::npos || end == std::string::npos) throw std::runtime_error("no page from " + browser);
  return output.substr(begin + 7, end - begin - 7);
}

}  // namespace pacer::workflow
