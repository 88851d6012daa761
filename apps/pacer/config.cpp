#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/pacer/commands.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/schema.h"

namespace pacer::cli {
namespace {

struct Arguments {
  std::filesystem::path recipe;
  std::vector<std::string> overrides;
  bool markdown = false;
};

std::string schema_text() {
  std::string text;
  for (const train::Key& key : train::schema()) {
    const std::string allowed = key.allowed();
    text += key.name + "  (" + key.type() + ", " + (key.required ? "required" : "default " + train::default_text(key)) +
            (allowed.empty() ? "" : "; " + allowed) + ")\n    " + key.doc + "\n";
  }
  return text;
}

void add_recipe_options(CLI::App& command, Arguments& arguments) {
  command.add_option("recipe", arguments.recipe, "Recipe (YAML)")->required();
  command.add_option("overrides", arguments.overrides, "section.key=value, wins over the recipe");
}

}  // namespace

void add_config(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("config", "Look at recipes: what they may contain, what one says");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<Arguments>();

  CLI::App* schema = command->add_subcommand("schema", "List every key of a recipe with type, default and range");
  schema->add_flag("--markdown", arguments->markdown, "As the tables of docs/recipes.md");
  context.add_common(*schema, {"pacer config schema", "pacer config schema --json"});
  schema->callback([arguments, &context] {
    if (context.json) return context.print_json(train::schema_json());
    context.print(arguments->markdown ? train::schema_markdown() : schema_text());
  });

  CLI::App* show = command->add_subcommand("show", "Print the whole recipe and where each value comes from");
  add_recipe_options(*show, *arguments);
  context.add_common(*show, {"pacer config show recipes/dspark_small.yaml draft.layers=1"});
  show->callback([arguments, &context] {
    const auto resolved = train::read_recipe(arguments->recipe, arguments->overrides);
    if (context.json) return context.print_json(train::resolved_json(resolved));
    context.print(train::resolved_yaml(resolved));
  });

  CLI::App* check = command->add_subcommand("check", "Check a recipe without running it");
  add_recipe_options(*check, *arguments);
  context.add_common(*check, {"pacer config check my.yaml"});
  check->callback([arguments, &context] {
    train::read_recipe(arguments->recipe, arguments->overrides);
    if (context.json) return context.print_json({{"recipe", arguments->recipe.string()}, {"valid", true}});
    context.print(arguments->recipe.string() + ": no mistakes found\n");
  });
}

}  // namespace pacer::cli
