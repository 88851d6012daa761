// A page as a browser sees it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace pacer::workflow {

// The program of a Chromium or Chrome on PATH.
std::optional<std::string> find_browser();

// Loads the page without a window and returns its title after its scripts ran.
std::string title_in_browser(const std::string& browser, const std::filesystem::path& page, int width, bool dark);

}  // namespace pacer::workflow

// Use at the start of a test: declares `browser`, or skips by name (fails in CI, where one is installed).
#define PACER_BROWSER_OR_SKIP(browser)                                               \
  const auto browser##_found = ::pacer::workflow::find_browser();                    \
  if (!browser##_found) {                                                            \
    if (::pacer::test::packages_required()) FAIL() << "no Chromium, and this is CI"; \
    GTEST_SKIP() << "no Chromium on PATH";                                           \
  }                                                                                  \
  const std::string browser = *browser##_found
