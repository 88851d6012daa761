#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <CLI/CLI.hpp>

#include "apps/pacer/commands.h"
#include "apps/pacer/context.h"
#include "apps/pacer/failure.h"
#include "apps/pacer/signals.h"
#include "pacer/base/logging.h"
#include "pacer/base/version.h"

namespace {

// OpenMP threads that spin cost up to a thousandfold on a busy machine, while sleeping at once costs a tenth of a
// training step on an idle one. So they spin for about as long as it takes to wake a sleeper: 30 to 100 us. The OpenMP
// library reads its environment while it is loaded, before main, so the program starts itself once more with the
// setting in place.
void restart_with_short_waits(char** arguments) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (::setenv("OMP_WAIT_POLICY", "passive", 1) == 0 && ::setenv("GOMP_SPINCOUNT", "2000", 1) == 0) {
    // By its own path, so that lists of processes show its name; a file that was replaced meanwhile has none.
    std::error_code code;
    ::execv(std::filesystem::read_symlink("/proc/self/exe", code).c_str(), arguments);
    ::execv("/proc/self/exe", arguments);
  }
  pacer::log_warning("cannot start again with OMP_WAIT_POLICY=passive (" + std::string(std::strerror(errno)) +
                     "): on a busy machine this run will be slow");
}

// LibTorch reads it at its first large allocation. Tensors above 32 MB (gradients and weights of a vocabulary) come
// from the system and go back to it in every training step; in pages of 4 KiB that costs more than the copies into
// them.
void use_huge_pages() { ::setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0); }

// Usage and version are text: nothing is computed, and a start costs a fifth of a second of loading.
bool asks_for_text(int count, char** arguments) {
  return count == 1 || std::any_of(arguments + 1, arguments + count, [](const char* argument) {
           const std::string_view word(argument);
           return word == "--help" || word == "-h" || word == "--version";
         });
}

int run(int count, char** arguments) {
  pacer::cli::Context context;
  CLI::App app(
      "Trains drafts for speculative decoding, proves that they are lossless, and measures what they are worth.",
      "pacer");
  app.set_version_flag("--version", std::string("pacer ") + pacer::version());
  pacer::cli::add_commands(app, context);
  // After the commands, which would inherit it.
  app.footer(
      "Examples:\n  pacer quickstart\n  pacer train --help\n\n'pacer COMMAND --help' shows the options of a command.");
  app.parse_complete_callback([&] { context.apply(); });

  try {
    app.parse(count, arguments);
    if (app.get_subcommands().empty()) context.print(app.help());
    return 0;
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::RuntimeError& ended) {  // a command that has said what went wrong
    return ended.get_exit_code();
  } catch (const CLI::ParseError& failure) {
    // The parser may have stopped before it saw the flag.
    const bool json =
        std::any_of(arguments, arguments + count, [](const char* a) { return std::string_view(a) == "--json"; });
    return pacer::cli::report(pacer::cli::to_error(failure, app), json);
  } catch (...) {
    return pacer::cli::report(pacer::cli::to_error(std::current_exception()), context.json);
  }
}

}  // namespace

int main(int argc, char** argv) {
  use_huge_pages();
  if (!asks_for_text(argc, argv)) restart_with_short_waits(argv);
  pacer::cli::take_signals();
  return run(argc, argv);
}
