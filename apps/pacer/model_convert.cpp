#include <filesystem>
#include <memory>
#include <string>

#include "apps/pacer/commands.h"
#include "pacer/base/error.h"
#include "pacer/base/numbers.h"
#include "pacer/formats/dtype.h"
#include "pacer/workflow/convert_model.h"
#include "pacer/workflow/convert_to_gguf.h"

namespace pacer::cli {
namespace {

struct Arguments {
  std::filesystem::path model, out;
  std::string to = "folder", dtype, type;
  bool replace = false;
};

void run(const Arguments& arguments, const Context& context) {
  const bool gguf = arguments.to == "gguf";
  if (gguf ? !arguments.dtype.empty() : !arguments.type.empty()) {
    throw Error(ErrorKind::usage, gguf ? "--dtype is for --to folder" : "--type is for --to gguf",
                gguf ? "give --type q8_0, bf16 or f32" : "give --dtype bf16, f16 or f32");
  }
  const std::string word =
      gguf ? (arguments.type.empty() ? "bf16" : arguments.type) : (arguments.dtype.empty() ? "bf16" : arguments.dtype);
  const workflow::ConvertedModel converted =
      gguf ? workflow::convert_to_gguf(arguments.model, arguments.out, workflow::parse_gguf_type(word),
                                       arguments.replace)
           : workflow::convert_model(arguments.model, arguments.out, workflow::parse_weight_dtype(word),
                                     arguments.replace);
  if (context.json) {
    return context.print_json({{"model", std::filesystem::absolute(arguments.out).string()},
                               {gguf ? "type" : "dtype", word},
                               {"tensors", converted.tensors},
                               {"parameters", converted.parameters},
                               {"bytes", converted.bytes}});
  }
  context.print(arguments.out.string() + ": " + std::to_string(converted.tensors) + " tensors, " + word + ", " +
                format_bytes(converted.bytes) + "\n");
}

}  // namespace

void add_model_convert(CLI::App& model, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      model.add_subcommand("convert", "Write a GGUF file as a Hugging Face folder, or a model as a GGUF file");
  command->add_option("model", arguments->model, "A .gguf file (llama, qwen2 or qwen3); with --to gguf also a folder")
      ->required();
  command->add_option("out", arguments->out, "Folder or file to write; it must not exist")->required();
  command->add_option("--to", arguments->to, "What to write")
      ->check(CLI::IsMember({"folder", "gguf"}))
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "Element type of a folder's weights [bf16]")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}));
  command
      ->add_option("--type", arguments->type,
                   "Element type of a GGUF file's matrices [bf16]; q8_0 takes half the room and decodes faster")
      ->check(CLI::IsMember({"q8_0", "bf16", "f32"}));
  command->add_flag("--replace", arguments->replace, "Replace what exists, in one step at the end");
  context.add_common(*command, {"pacer model convert model.gguf models/mine",
                                "pacer model convert models/mine model.gguf --to gguf --type q8_0",
                                "pacer model convert small.gguf exact.gguf --to gguf --type f32"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
