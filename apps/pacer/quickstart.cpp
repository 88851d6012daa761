#include <map>
#include <memory>
#include <string>

#include "apps/pacer/commands.h"
#include "apps/pacer/device_options.h"
#include "apps/pacer/signals.h"
#include "pacer/train/stop_signal.h"
#include "pacer/workflow/quickstart.h"

namespace pacer::cli {
namespace {

struct Arguments {
  workflow::QuickstartOptions options;
  std::string model;
  DeviceOptions device;
};

void run(Arguments arguments, const Context& context) {
  workflow::QuickstartOptions& options = arguments.options;
  if (!arguments.model.empty()) options.model = arguments.model;
  options.command = {"pacer", "quickstart"};
  arguments.device.use_kernel_paths();
  options.device = arguments.device.device;
  Json summary;
  int signal = 0;
  {
    const train::StopSignal stop;
    options.stop_requested = [] { return train::StopSignal::received() != 0; };
    summary = workflow::run_quickstart(options);
    signal = train::StopSignal::received();
  }
  if (summary.is_null()) {
    const std::string folder = options.folder.string();
    if (context.json) {
      context.print_json({{"finished", false}, {"folder", folder}});
    } else {
      context.print("stopped; what is finished is kept in " + folder + ", and the same command goes on from here\n");
    }
    return end_as_asked(signal);
  }
  if (context.json) {
    context.print_json(OrderedJson(summary));
  } else {
    context.print("\n" + workflow::quickstart_table(summary) +
                  "\nreport: " + (options.folder / "report.html").string() + "\n");
  }
}

}  // namespace

void add_quickstart(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  workflow::QuickstartOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "quickstart", "The main job on a real model: answers, a trained draft, a measured speed-up, a report");
  command->add_option("--dir", options.folder, "Where everything goes; finished stages there are not done again")
      ->capture_default_str();
  command->add_option("--model", arguments->model,
                      "Hugging Face folder or .gguf file (default: SmolLM2-135M-Instruct, fetched)");
  command->add_option("--minutes", options.wishes.minutes, "Time for everything; spent by a plan that is shown")
      ->check(CLI::Range(0.5, 1440.0))
      ->capture_default_str();
  command->add_option("--steps", options.wishes.steps, "Train so many steps, whatever the time")
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--mask-token-id", options.mask_token_id,
                   "draft.mask_token_id, for a model whose tokenizer uses every id: a special token that no answer has")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--prompts", options.wishes.prompts, "Answer so many training prompts")
      ->check(CLI::Range(16, 6000));
  command
      ->add_option(
          "--training", options.wishes.training,
          "What to train on: word_problems, or mixed with everyday requests (default: mixed from 20 minutes on)")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, workflow::TrainingPrompts>{{"word_problems", workflow::TrainingPrompts::word_problems},
                                                           {"mixed", workflow::TrainingPrompts::mixed}},
          CLI::ignore_case));
  command
      ->add_option(
          "--evaluation-prompts", options.wishes.evaluation_prompts,
          "Per kind (default: 40 word problems, 20 of other kinds that are trained on, else 8); there are 64 and 20")
      ->check(CLI::Range(1, 64));
  command->add_flag("--full", options.wishes.full, "Every way of decoding, and texts in f32, on every prompt");
  command->add_option("--threads", options.threads, "0: as the machine has cores")->capture_default_str();
  arguments->device.add_to(*command);
  command->add_option("--seed", options.seed)->capture_default_str();
  context.add_common(*command, {"pacer quickstart", "pacer quickstart --minutes 30 --dir long",
                                "pacer quickstart --model ./my-model --full"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
