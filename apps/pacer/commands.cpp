#include "apps/pacer/commands.h"

namespace pacer::cli {
namespace {

// A command that only holds others: `pacer model convert`.
CLI::App& group(CLI::App& app, const char* name, const char* description) {
  CLI::App* command = app.add_subcommand(name, description);
  command->require_subcommand(1);
  return *command;
}

}  // namespace

void add_commands(CLI::App& app, Context& context) {
  add_quickstart(app, context);
  CLI::App& model = group(app, "model", "Look at models and change their format");
  add_model_inspect(model, context);
  add_model_convert(model, context);
  CLI::App& data = group(app, "data", "Make and check the text that drafts are trained on");
  add_data_generate(data, context);
  add_data_check(data, context);
  add_config(app, context);
  add_train(app, context);
  add_eval(app, context);
  add_generate(app, context);
  add_report(app, context);
  add_launch(app, context);
  add_gate(app, context);
  add_plan(app, context);
  add_bench(app, context);
  add_doctor(app, context);
}

}  // namespace pacer::cli
