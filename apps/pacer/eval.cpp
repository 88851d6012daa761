#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/pacer/commands.h"
#include "apps/pacer/device_options.h"
#include "apps/pacer/thread_option.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/numbers.h"
#include "pacer/base/progress.h"
#include "pacer/device/runtime.h"
#include "pacer/draft/block_proposer.h"
#include "pacer/eval/draft_length.h"
#include "pacer/eval/repeats.h"
#include "pacer/eval/summary.h"
#include "pacer/eval/task.h"
#include "pacer/text/model_text.h"
#include "pacer/train/draft_origin.h"
#include "pacer/train/run_folder.h"

namespace pacer::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  DeviceOptions device;
  fs::path target, draft, out;
  std::vector<fs::path> tasks;
  std::string dtype = "bf16", variables;
  int64_t limit = 0, repeat = 1;
  std::vector<int64_t> drafts;
  std::string threads = "0";
  eval::MeasureOptions options;
};

void run(Arguments arguments, const Context& context) {
  eval::MeasureOptions& options = arguments.options;
  OrderedJson variables = OrderedJson::object();
  if (!arguments.variables.empty()) {
    variables = parse_ordered_json(arguments.variables, "--template-variables", ErrorKind::usage);
  }
  const std::vector<eval::Task> tasks = eval::read_tasks(arguments.tasks, arguments.limit);
  auto runtime = arguments.device.open();
  set_threads(arguments.threads, runtime);
  const auto text = text::ModelText::load(arguments.target);
  const eval::Words words = eval::words_of(text, variables);
  const std::shared_ptr<const target::Target> target =
      target::Target::load(arguments.target, target::parse_precision(arguments.dtype), runtime);
  choose_threads(arguments.threads, *target, *text, runtime);
  if (options.sampling.stop_ids.empty()) options.sampling.stop_ids = target->config().eos_ids;
  options.sampling.vocabulary = text->tokenizer()->vocab_size();
  std::unique_ptr<draft::Proposer> draft;
  if (!arguments.draft.empty()) {
    const fs::path folder = train::best_draft(arguments.draft);
    train::warn_of_another_target(folder, arguments.target);
    draft = draft::load_block_proposer(folder, target);
  }

  int64_t prompts = 0;
  for (const eval::Task& task : tasks) prompts += static_cast<int64_t>(task.prompts.size());
  const std::vector<int64_t> lengths = arguments.drafts.empty() ? std::vector<int64_t>{0} : arguments.drafts;
  if (!arguments.drafts.empty() && !draft) {
    throw Error(ErrorKind::usage, "--drafts needs a --draft", "--lookup-tokens says how far prompt lookup proposes");
  }
  if (lengths.size() > 1 && arguments.repeat > 1) {
    throw Error(ErrorKind::usage, "several --drafts and --repeat do not go together", "repeat the best length alone");
  }
  const auto passes = static_cast<int64_t>(lengths.size()) * arguments.repeat;
  Progress progress("eval", static_cast<uint64_t>(prompts * passes), {.unit = "prompts"});
  int64_t before = 0;  // prompts of earlier runs
  options.on_progress = [&](const eval::Progress& state) {
    std::string note = state.task;
    if (state.acceptance_length > 0.0) note += ", acceptance length " + format_fixed(state.acceptance_length, 2);
    progress.update(static_cast<uint64_t>(before + state.done), note);
  };
  std::vector<std::vector<eval::TaskResult>> runs;
  std::vector<eval::LengthRun> by_length;
  for (const int64_t length : lengths) {
    options.most_drafts = length;
    for (int64_t run = 0; run < arguments.repeat; ++run, before += prompts) {
      runs.push_back(eval::measure(*target, draft.get(), tasks, words, options));
    }
    if (lengths.size() > 1) by_length.push_back({length, runs.back()});
  }
  progress.finish();

  const eval::Setup setup{arguments.target.string(), arguments.draft.string(), draft ? draft->name() : "",
                          arguments.dtype, runtime.threads()};
  if (!by_length.empty()) options.most_drafts = lengths.front();  // the tables are those of the first length
  OrderedJson result = eval::result_json(setup, options, runs.front());
  if (!by_length.empty()) {
    result["draft_lengths"] = eval::length_runs_json(by_length);
  } else if (runs.size() > 1) {
    result["repeats"] = eval::repeats_json(runs);
  }
  const auto advice =
      by_length.empty() ? eval::advise_length(eval::summarise(runs.front())) : eval::advise_length(by_length);
  if (advice) result["advice"] = eval::advice_json(*advice);
  if (!arguments.out.empty()) {
    // Text that a model wrote may end inside a character.
    write_file(arguments.out, result.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  }
  if (context.json) {
    context.print_json(result);
  } else {
    context.print(eval::result_table(runs.front()));
    if (options.pace == eval::PaceUse::off && draft) {
      context.print("pace off: the whole proposal every round; --pace on also measures what pacer generate does\n");
    }
    if (advice) context.print(eval::advice_text(*advice));
    if (!by_length.empty()) {
      context.print("\n" + eval::length_runs_table(by_length));
    } else if (runs.size() > 1) {
      context.print("\n" + eval::repeats_table(runs));
    }
  }
}

}  // namespace

void add_eval(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  eval::MeasureOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("eval", "Measure what a draft is worth: acceptance, speed-up, same text");
  command->add_option("--target", arguments->target, "Hugging Face folder or .gguf file")->required();
  command->add_option("--draft", arguments->draft,
                      "A draft or the run that trained it; without it only prompt lookup is measured");
  command
      ->add_option("--tasks", arguments->tasks,
                   "Files of prompts (JSON Lines), separated by commas; FILE:N takes the first N of one, a folder all "
                   "NAME.jsonl in it")
      ->required()
      ->delimiter(',');
  command->add_option("--limit", arguments->limit, "First so many prompts of every task; 0: all")
      ->capture_default_str();
  command->add_option("--max-turns", options.max_turns, "First so many turns of every prompt; 0: all")
      ->capture_default_str();
  command
      ->add_option("--dtype", arguments->dtype,
                   "Arithmetic of target and draft; stored: weights as a .gguf file has them")
      ->check(CLI::IsMember({"f32", "bf16", "stored", "stored-int8"}))
      ->capture_default_str();
  command->add_option("--max-new-tokens", options.sampling.max_new_tokens, "Longest text")->capture_default_str();
  command->add_option("--temperature", options.sampling.temperature, "0: the likeliest token")->capture_default_str();
  command->add_option("--top-p", options.sampling.top_p)->capture_default_str();
  command->add_option("--top-k", options.sampling.top_k, "0: all")->capture_default_str();
  command->add_option("--seed", options.sampling.seed)->capture_default_str();
  command
      ->add_option("--confidence-threshold", options.confidence_threshold,
                   "Cut proposals before the first token below it; 0: off")
      ->capture_default_str();
  command
      ->add_option("--drafts", arguments->drafts,
                   "Most drafts a round, at most what the draft was trained for; several: measured one after the other")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--pace", options.pace,
                   "Draft only where it pays, as pacer generate does: off, on (beside the draft as it is) or only")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, eval::PaceUse>{
              {"off", eval::PaceUse::off}, {"on", eval::PaceUse::on}, {"only", eval::PaceUse::only}},
          CLI::ignore_case))
      ->default_str("off");
  command->add_option("--repeat", arguments->repeat, "Measure everything so often and print the median per task")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--system", options.system, "System message of prompts without one");
  command->add_option("--template-variables", arguments->variables,
                      "JSON object for the chat template, e.g. {\"enable_thinking\": false}");
  command->add_flag("!--no-lookup", options.lookup, "Leave out prompt lookup, the baseline without training");
  command->add_option("--lookup-tokens", options.lookup_tokens, "Tokens per proposal of prompt lookup")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--out", arguments->out, "Write the result as JSON (docs/evaluation.md)");
  arguments->device.add_to(*command);
  add_threads(*command, arguments->threads);
  context.add_common(
      *command,
      {"pacer eval --target model --draft runs/first --tasks data/prompts/chat.jsonl",
       "pacer eval --target model --draft runs/first --tasks data/prompts/code.jsonl --drafts 1,2,3,5",
       "pacer eval --target m.gguf --draft d --tasks a.jsonl,b.jsonl --dtype f32 --limit 6 --out r.json",
       "pacer eval --target m.gguf --draft d --tasks chat.jsonl,code.jsonl --pace only --no-lookup --repeat 5"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
