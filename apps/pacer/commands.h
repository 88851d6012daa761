// One function per subcommand, each in the file of its name. add_commands (commands.cpp) puts them in the order of the
// help.
#pragma once

#include <CLI/CLI.hpp>

#include "apps/pacer/context.h"

namespace pacer::cli {

// Declares a subcommand on `app` with its options, and sets its callback to call into the rooms. Nothing is computed
// here.

void add_commands(CLI::App& app, Context& context);

}  // namespace pacer::cli
