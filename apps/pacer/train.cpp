#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/pacer/commands.h"
#include "apps/pacer/signals.h"
#include "pacer/base/error.h"
#include "pacer/base/numbers.h"
#include "pacer/parallel/launch_environment.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/stop_signal.h"
#include "pacer/train/train.h"

namespace pacer::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  fs::path recipe, run;
  std::vector<std::string> overrides;
};

train::ResolvedRecipe recipe_of(const Arguments& arguments) {
  if (!arguments.recipe.empty()) return train::read_recipe(arguments.recipe, arguments.overrides);
  if (arguments.run.empty()) {
    throw Error(ErrorKind::usage, "neither a recipe nor a run is given",
                "pacer train -c recipes/dspark_small.yaml, or pacer train --run RUN to continue a run");
  }
  if (!arguments.overrides.empty()) {
    throw Error(ErrorKind::usage, "overrides need a recipe: '" + arguments.overrides.front() + "' was given without -c",
                "a run is continued with the recipe that it began with");
  }
  return train::recipe_of_run(arguments.run);
}

std::string summary(const train::TrainResult& result) {
  std::string text = result.finished ? "finished " : "stopped after ";
  text +=
      format_count(result.step) + " of " + format_count(result.steps) + " steps in " + format_duration(result.wall_s);
  if (result.last_loss) text += ", loss " + format_fixed(*result.last_loss, 3);
  if (result.first_loss) text += " (began at " + format_fixed(*result.first_loss, 3) + ")";
  if (result.best_tau) {
    text += ", best validation tau " + format_fixed(*result.best_tau, 2) + " at step " + format_count(result.best_step);
  }
  if (result.validation_loss) text += ", held-out loss " + format_fixed(*result.validation_loss, 3);
  return text + (result.validation_loss ? "\nmodel: " : "\ndraft: ") + result.draft.string() + "\n";
}

void run(const Arguments& arguments, const Context& context) {
  const train::ResolvedRecipe recipe = recipe_of(arguments);
  train::TrainOptions options;
  options.run = arguments.run.empty() ? fs::path("runs") / arguments.recipe.stem() : arguments.run;
  options.command = {"pacer", "train"};
  if (!arguments.recipe.empty()) options.command.insert(options.command.end(), {"-c", arguments.recipe.string()});
  options.command.insert(options.command.end(), {"--run", options.run.string()});
  options.command.insert(options.command.end(), arguments.overrides.begin(), arguments.overrides.end());

  train::TrainResult result;
  int signal = 0;
  {
    const train::StopSignal stop;
    options.stop_requested = [] { return train::StopSignal::received() != 0; };
    result = train::train(recipe, options);
    signal = train::StopSignal::received();
  }
  // Ranks come to the same result: one says it.
  const parallel::LaunchEnvironment launched = parallel::read_launch_environment();
  const bool first = launched.rank == 0;
  if (first && context.json) {
    context.print_json(result.to_json());
  } else if (first) {
    context.print(summary(result));
    const std::string launch = launched.world > 1 ? "pacer launch -n " + std::to_string(launched.world) + " -- " : "";
    if (!result.finished) {
      context.print("continue with: " + launch + "pacer train --run \"" + options.run.string() + "\"\n");
    }
  }
  // Saved and said; what is left of the signal is its exit status, which a shell reads from how the process ended.
  // A rank may also have stopped because another one was asked.
  if (!result.finished && signal != 0) end_as_asked(signal);
}

}  // namespace

void add_train(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a draft by a recipe, or continue an interrupted run");
  command->add_option("-c,--config", arguments->recipe, "Recipe (YAML); without it --run is continued");
  command->add_option("--run", arguments->run, "Folder of the run (default: runs/NAME-OF-THE-RECIPE)");
  command->add_option("overrides", arguments->overrides, "section.key=value, wins over the recipe");
  context.add_common(*command, {"pacer train -c recipes/dspark_small.yaml --run runs/first",
                                "pacer train -c my.yaml optimizer.learning_rate=1e-3 schedule.epochs=4",
                                "pacer train --run runs/first    # goes on where it was interrupted",
                                "pacer launch -n 2 -- pacer train -c my.yaml parallel.replicate=2"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
