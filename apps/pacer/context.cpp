#include "apps/pacer/context.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"

namespace pacer::cli {

void Context::add_common(CLI::App& command, std::initializer_list<std::string> examples) {
  command.add_flag("--json", json, "Print one JSON object for programs on stdout")->group("Common");
  CLI::Option* quiet_flag =
      command.add_flag("-q,--quiet", quiet, "Only warnings and errors on stderr")->group("Common");
  command.add_flag("-v,--verbose", verbose, "More detail on stderr")->group("Common")->excludes(quiet_flag);
  std::string footer = "Examples:";
  for (const std::string& example : examples) footer += "\n  " + example;
  command.footer(footer);
}

void Context::apply() const {
  if (quiet) set_log_level(LogLevel::warning);
  if (verbose) set_log_level(LogLevel::debug);
}

void Context::print_json(const OrderedJson& value) const {
  // Text that a model wrote may end inside a character; a program must still be able to read the object.
  print(value.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

void Context::print(const std::string& text) const {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(ErrorKind::resources, std::string("stdout cannot be written: ") + std::strerror(errno),
                "is there space, and does its reader still listen?");
  }
}

}  // namespace pacer::cli
