#include <filesystem>
#include <memory>
#include <string>

#include "apps/pacer/commands.h"
#include "apps/pacer/device_options.h"
#include "apps/pacer/signals.h"
#include "apps/pacer/thread_option.h"
#include "pacer/base/error.h"
#include "pacer/base/numbers.h"
#include "pacer/device/runtime.h"
#include "pacer/train/stop_signal.h"
#include "pacer/workflow/generate_data.h"

namespace pacer::cli {
namespace {

struct Arguments {
  DeviceOptions device;
  std::filesystem::path target;
  workflow::GenerateOptions options;
  std::string dtype = "bf16", policy = "drop", variables;
  std::string threads = "0";
};

void run(Arguments arguments, const Context& context) {
  workflow::GenerateOptions& options = arguments.options;
  options.policy = data::parse_bad_row_policy(arguments.policy);
  if (!arguments.variables.empty()) {
    options.variables = parse_ordered_json(arguments.variables, "--template-variables", ErrorKind::usage);
  }
  options.target_name = std::filesystem::weakly_canonical(arguments.target).filename().string();
  auto runtime = arguments.device.open();
  set_threads(arguments.threads, runtime);
  const auto text = text::ModelText::load(arguments.target);
  const auto target = target::Target::load(arguments.target, target::parse_precision(arguments.dtype), runtime);
  choose_threads(arguments.threads, *target, *text, runtime);
  workflow::GenerateReport report;
  int signal = 0;
  {
    const train::StopSignal stop;
    options.stop_requested = [] { return train::StopSignal::received() != 0; };
    report = workflow::generate_data(*target, *text, options);
    signal = train::StopSignal::received();
  }
  if (context.json) {
    context.print_json(report.to_json());
  } else {
    context.print(options.out.string() + ": " + std::to_string(report.answered) + " answers (" +
                  std::to_string(report.new_tokens) + " tokens) written, " + std::to_string(report.resumed) +
                  " were there\n" + (report.finished ? "" : "stopped; the same command goes on from here\n"));
  }
  if (!report.finished) end_as_asked(signal);
}

}  // namespace

void add_data_generate(CLI::App& data, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  workflow::GenerateOptions& options = arguments->options;
  options.sampling.max_new_tokens = 512;
  CLI::App* command = data.add_subcommand("generate", "Let the target answer prompts: the text a draft is trained on");
  command->add_option("--target", arguments->target, "Hugging Face folder or .gguf file")->required();
  command->add_option("--prompts", options.prompts, "JSON Lines of messages, conversations, turns or prompt")
      ->required();
  command->add_option("--out", options.out, "Rows to write; a file that exists is continued")->required();
  command->add_option("--dtype", arguments->dtype, "Arithmetic of the target; stored: weights as a .gguf file has them")
      ->check(CLI::IsMember({"f32", "bf16", "stored", "stored-int8"}))
      ->capture_default_str();
  command->add_option("--max-new-tokens", options.sampling.max_new_tokens, "Longest answer")->capture_default_str();
  command->add_option("--temperature", options.sampling.temperature, "0: the likeliest token")->capture_default_str();
  command->add_option("--top-p", options.sampling.top_p)->capture_default_str();
  command->add_option("--top-k", options.sampling.top_k, "0: all")->capture_default_str();
  command->add_option("--seed", options.sampling.seed)->capture_default_str();
  command->add_option("--system", options.system, "System message of conversations without one");
  command->add_option("--template-variables", arguments->variables,
                      "JSON object for the chat template, e.g. {\"enable_thinking\": false}");
  command->add_option("--bad-rows", arguments->policy, "Conversations whose roles are out of order")
      ->check(CLI::IsMember({"truncate", "drop", "error"}))
      ->capture_default_str();
  command->add_flag("!--drop-cut", options.keep_cut, "Leave out answers that reached --max-new-tokens");
  command->add_option("--batch", options.sequences, "Answers in flight")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--limit", options.limit, "First so many prompts; 0: all")->capture_default_str();
  arguments->device.add_to(*command);
  add_threads(*command, arguments->threads);
  context.add_common(*command, {"pacer data generate --target model --prompts prompts.jsonl --out rows.jsonl",
                                "pacer data generate --target m.gguf --prompts p.jsonl --out r.jsonl "
                                "--temperature 0.7 --top-p 0.9 --seed 3"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
