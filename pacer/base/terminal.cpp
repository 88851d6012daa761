#include "pacer/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace pacer {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

const char* code_of(Style style) {
  switch (style) {
    case Style::bold:
      return "\033[1m";
    case Style::dim:
      return "\033[2m";
    case Style::red:
      return "\033[31m";
    case Style::green:
      return "\033[32m";
    case Style::yellow:
      return "\033[33m";
    case Style::blue:
      return "\033[34m";
    case Style::cyan:
      return "\033[36m";
  }
  return "";
}

}  // namespace

bool is_terminal(StandardStream stream) { return ::isatty(static_cast<int>(stream)) == 1; }

bool has_colour(StandardStream stream) {
  if (is_set("NO_COLOR")) return false;
  if (is_set("CLICOLOR_FORCE")) return std::strcmp(std::getenv("CLICOLOR_FORCE"), "0") != 0;
  const char* terminal = std::getenv("TERM");
  return is_terminal(stream) && terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
}

int terminal_columns(StandardStream stream) {
  winsize size{};
  if (::ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string styled(std::string_view text, Style style, bool colour) {
  if (!colour) return std::string(text);
  return code_of(style) + std::string(text) + "\033[0m";
}

}  // namespace pacer
