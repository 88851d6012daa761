#include "apps/pacer/commands.h"

namespace pacer::cli {

void add_commands(CLI::App& app, Context& context) { (void)app, (void)context; }

}  // namespace pacer::cli
