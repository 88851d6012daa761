#include <filesystem>
#include <memory>
#include <string>

#include "apps/pacer/commands.h"
#include "pacer/base/numbers.h"
#include "pacer/formats/dtype.h"
#include "pacer/workflow/convert_model.h"

namespace pacer::cli {
namespace {

struct Arguments {
  std::filesystem::path file, folder;
  std::string dtype = "bf16";
  bool replace = false;
};

void run(const Arguments& arguments, const Context& context) {
  const workflow::ConvertedModel converted = workflow::convert_model(
      arguments.file, arguments.folder, workflow::parse_weight_dtype(arguments.dtype), arguments.replace);
  if (context.json) {
    return context.print_json({{"model", std::filesystem::absolute(arguments.folder).string()},
                               {"dtype", arguments.dtype},
                               {"tensors", converted.tensors},
                               {"parameters", converted.parameters},
                               {"bytes", converted.bytes}});
  }
  context.print(arguments.folder.string() + ": " + std::to_string(converted.tensors) + " tensors, " + arguments.dtype +
                ", " + format_bytes(converted.bytes) + "\n");
}

}  // namespace

void add_model_convert(CLI::App& model, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = model.add_subcommand("convert", "Write a GGUF file as a Hugging Face folder");
  command->add_option("file", arguments->file, "The .gguf file (llama, qwen2 or qwen3)")->required();
  command->add_option("folder", arguments->folder, "Folder to write; it must not exist")->required();
  command->add_option("--dtype", arguments->dtype, "Element type of the weights")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->capture_default_str();
  command->add_flag("--replace", arguments->replace, "Replace an existing folder, in one step at the end");
  context.add_common(*command, {"pacer model convert model.gguf models/mine",
                                "pacer model convert model.gguf models/mine --dtype f32"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
