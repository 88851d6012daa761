#include <memory>
#include <string>
#include <vector>

#include "apps/pacer/commands.h"
#include "apps/pacer/signals.h"
#include "pacer/base/logging.h"
#include "pacer/parallel/launcher.h"

namespace pacer::cli {
namespace {

struct Arguments {
  parallel::LaunchOptions options;
  std::vector<std::string> command;
};

}  // namespace

void add_launch(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("launch", "Start a command as several ranks on this machine");
  command->add_option("-n,--processes", arguments->options.processes, "Ranks to start")
      ->check(CLI::PositiveNumber)
      ->required();
  command->add_option("--grace", arguments->options.grace_s, "Seconds that ranks have to end after one failed")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("command", arguments->command, "What every rank runs, behind --")->required();
  command->positionals_at_end();
  context.add_common(*command, {"pacer launch -n 4 -- pacer gate --faults"});
  command->callback([arguments] {
    const parallel::LaunchResult result = parallel::launch(arguments->command, arguments->options);
    if (result.signal != 0) end_as_asked(result.signal);
    if (result.exit_code == 0) return;
    log_warning("rank " + std::to_string(result.failed_rank) + " failed with exit code " +
                std::to_string(result.exit_code) + (result.message.empty() ? "" : ": " + result.message));
    // The ranks have said the rest; their code is this command's.
    throw CLI::RuntimeError(result.exit_code);
  });
}

}  // namespace pacer::cli
