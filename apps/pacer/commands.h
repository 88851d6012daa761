// One function per subcommand, each in the file of its name; add_commands (commands.cpp) gives the order of the help.
#pragma once

#include <CLI/CLI.hpp>

#include "apps/pacer/context.h"

namespace pacer::cli {

// Each declares one subcommand on `app` with its options; its callback calls into the rooms and computes nothing
// itself.
void add_bench(CLI::App& app, Context& context);
void add_config(CLI::App& app, Context& context);
void add_data_check(CLI::App& data, Context& context);
void add_data_generate(CLI::App& data, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_eval(CLI::App& app, Context& context);
void add_gate(CLI::App& app, Context& context);
void add_generate(CLI::App& app, Context& context);
void add_launch(CLI::App& app, Context& context);
void add_model_convert(CLI::App& model, Context& context);
void add_model_inspect(CLI::App& model, Context& context);
void add_plan(CLI::App& app, Context& context);
void add_quickstart(CLI::App& app, Context& context);
void add_report(CLI::App& app, Context& context);
void add_train(CLI::App& app, Context& context);

// All of them.
void add_commands(CLI::App& app, Context& context);

}  // namespace pacer::cli
