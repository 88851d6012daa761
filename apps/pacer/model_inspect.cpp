#include <filesystem>
#include <memory>

#include "apps/pacer/commands.h"
#include "pacer/workflow/model_info.h"

namespace pacer::cli {

void add_model_inspect(CLI::App& model, Context& context) {
  const auto path = std::make_shared<std::filesystem::path>();
  CLI::App* command = model.add_subcommand(
      "inspect", "Say what a model is: sizes, types, tap layers, vocabulary, chat template, licence");
  command->add_option("model", *path, "Hugging Face folder or .gguf file")->required();
  context.add_common(*command,
                     {"pacer model inspect models/SmolLM2-135M-Instruct", "pacer model inspect model.gguf --json"});
  command->callback([path, &context] {
    const workflow::ModelInfo info = workflow::read_model_info(*path);
    if (context.json) return context.print_json(workflow::to_json(info));
    context.print(workflow::to_text(info));
  });
}

}  // namespace pacer::cli
