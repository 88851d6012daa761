#include "apps/pacer/failure.h"

#include <cstdio>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <c10/util/Exception.h>

#include "pacer/base/json.h"
#include "pacer/base/nearest.h"
#include "pacer/base/terminal.h"
#include "pacer/parallel/launch_environment.h"

namespace pacer::cli {
namespace {

constexpr const char* kBugHint = "this is a mistake in Pacer, not yours; please report it with the command line";

Error out_of_memory(const std::string& detail) {
  return Error(ErrorKind::resources, "out of memory" + (detail.empty() ? "" : ": " + detail),
               "use smaller batches or a smaller model, or free some memory");
}

// "pacer model convert": the commands that were recognised before the mistake.
const CLI::App& deepest(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : deepest(*chosen.front());
}

std::string path_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : path_of(*parent) + " " + command.get_name();
}

std::vector<std::string> known_names(const CLI::App& command, bool options) {
  std::vector<std::string> names;
  if (options) {
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else {
    for (const CLI::App* child : command.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(child->get_name());
    }
  }
  return names;
}

Error unknown_argument(const CLI::App& app, const std::string& help) {
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  const std::string argument = extras.empty() ? std::string() : extras.front();
  const CLI::App& command = deepest(app);
  const bool option = argument.starts_with("-");
  const std::vector<std::string> known = known_names(command, option);
  const std::string what = option ? "unknown option '" : known.empty() ? "unexpected argument '" : "unknown command '";
  const std::string meant = did_you_mean(argument.substr(0, argument.find('=')), known);
  return Error(ErrorKind::usage, path_of(command) + ": " + what + argument + "'",
               meant.empty() ? help : "did you mean '" + meant + "'? " + help);
}

}  // namespace

Error to_error(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error;
  } catch (const c10::OutOfMemoryError& error) {
    return out_of_memory(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    // The CPU allocator has no exception type of its own.
    if (message.find("DefaultCPUAllocator") != std::string::npos) return out_of_memory(message);
    return Error(ErrorKind::bug, message, kBugHint);
  } catch (const std::bad_alloc&) {
    return out_of_memory({});
  } catch (const std::filesystem::filesystem_error& error) {
    if (error.code() == std::errc::filename_too_long) {
      return Error(ErrorKind::usage, error.what(), "a path has at most 4095 bytes, each of its names at most 255");
    }
    return Error(ErrorKind::resources, error.what(), "may this user read and write there, and is there space?");
  } catch (const std::exception& error) {
    return Error(ErrorKind::bug, error.what(), kBugHint);
  }
}

Error to_error(const CLI::ParseError& failure, const CLI::App& app) {
  const CLI::App& command = deepest(app);
  const std::string help = "'" + path_of(command) + " --help' shows what is allowed";
  if (dynamic_cast<const CLI::ExtrasError*>(&failure) != nullptr) return unknown_argument(app, help);
  return Error(ErrorKind::usage, path_of(command) + ": " + failure.what(), help);
}

int report(const Error& error, bool json) {
  const bool colour = has_colour(StandardStream::error);
  std::fprintf(stderr, "%s %s\n", styled("error:", Style::red, colour).c_str(), error.what());
  if (!error.hint().empty()) {
    std::fprintf(stderr, "%s %s\n", styled("hint:", Style::cyan, colour).c_str(), error.hint().c_str());
  }
  if (json) {
    const OrderedJson value = {{"error",
                                {{"kind", name_of(error.kind())},
                                 {"message", error.what()},
                                 {"hint", error.hint()},
                                 {"exit_code", error.exit_code()}}}};
    std::printf("%s\n", value.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
    std::fflush(stdout);
  }
  parallel::write_error_file(error.what(), error.exit_code());
  return error.exit_code();
}

}  // namespace pacer::cli
