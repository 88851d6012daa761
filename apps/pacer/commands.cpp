#include "apps/pacer/commands.h"

namespace pacer::cli {
namespace {

// A command that only holds others: `pacer model convert`.
[[maybe_unused]] CLI::App& group(CLI::App& app, const char* name, const char* description) {
  CLI::App* command = app.add_subcommand(name, description);
  command->require_subcommand(1);
  return *command;
}

}  // namespace

void add_commands(CLI::App& app, Context& context) { add_report(app, context); }

}  // namespace pacer::cli
