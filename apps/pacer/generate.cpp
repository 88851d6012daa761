#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "apps/pacer/commands.h"
#include "apps/pacer/device_options.h"
#include "apps/pacer/thread_option.h"
#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/base/terminal.h"
#include "pacer/decode/loop.h"
#include "pacer/decode/pace.h"
#include "pacer/decode/prompt_lookup.h"
#include "pacer/device/runtime.h"
#include "pacer/draft/block_proposer.h"
#include "pacer/text/model_text.h"
#include "pacer/train/draft_origin.h"
#include "pacer/train/run_folder.h"

namespace pacer::cli {
namespace {

namespace fs = std::filesystem;
using decode::Origin;

struct Arguments {
  DeviceOptions device;
  fs::path target, draft;
  std::string prompt, system, dtype = "bf16", variables;
  std::string pace = "auto";
  bool raw = false, lookup = false, seeded = false;
  std::string threads = "0";
  decode::DecodeOptions options;
};

std::vector<int64_t> prompt_ids(const Arguments& arguments, const text::ModelText& text) {
  std::string prompt = arguments.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (prompt.empty()) throw Error(ErrorKind::usage, "the prompt is empty", "--prompt TEXT, or --prompt - for stdin");
  if (arguments.raw) return text.tokenizer()->encode(prompt, {.add_special_tokens = true}).ids;
  OrderedJson messages = OrderedJson::array();
  if (!arguments.system.empty()) messages.push_back({{"role", "system"}, {"content", arguments.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  OrderedJson variables = OrderedJson::object();
  if (!arguments.variables.empty()) {
    variables = parse_ordered_json(arguments.variables, "--template-variables", ErrorKind::usage);
  }
  return text.prompt_ids(messages, nullptr, variables);
}

// Drafted words in green, the target's corrections in yellow, its own other words as they are.
std::string coloured(const std::string& text, Origin origin, bool colour) {
  if (text.empty() || origin == Origin::target || origin == Origin::bonus) return text;
  return styled(text, origin == Origin::drafted ? Style::green : Style::yellow, colour);
}

std::string speed_line(const decode::Decoded& decoded) {
  const decode::Seconds total = decoded.times.total();
  const auto count = static_cast<double>(decoded.tokens.size());
  std::string line = std::to_string(decoded.tokens.size()) + " tokens in " + format_duration(total.wall) + ": " +
                     format_fixed(count / total.wall, 1) + " tokens/s";
  if (const auto length = decoded.counts().acceptance_length()) {
    line += ", acceptance length " + format_fixed(*length, 2);
  }
  return line;
}

// What the pace did with its rounds; null when it was off.
OrderedJson pace_json(const decode::Decoded& decoded, bool paced) {
  if (!paced) return nullptr;
  const decode::AcceptanceCounts counts = decoded.counts();
  return {{"rounds", counts.rounds},
          {"drafted", counts.rounds - counts.idle - counts.looked_up},
          {"looked_up", counts.looked_up},
          {"idle", counts.idle},
          {"trials", counts.trials}};
}

OrderedJson result_json(const decode::Decoded& decoded, bool paced, const std::vector<int64_t>& prompt,
                        const std::string& text) {
  const decode::Seconds total = decoded.times.total();
  OrderedJson json;
  json["text"] = text;
  json["finish"] = decode::finish_name(decoded.finish);
  json["prompt_tokens"] = prompt.size();
  json["new_tokens"] = decoded.tokens.size();
  json["tokens"] = decoded.tokens;
  OrderedJson origins = OrderedJson::array();
  for (const Origin origin : decoded.origins) origins.push_back(decode::origin_name(origin));
  json["origins"] = std::move(origins);
  json["wall_s"] = total.wall;
  json["cpu_s"] = total.cpu;
  json["tokens_per_s"] = static_cast<double>(decoded.tokens.size()) / total.wall;
  json["pace"] = pace_json(decoded, paced);
  json["acceptance"] = decoded.rounds.empty() ? OrderedJson(nullptr) : OrderedJson(decoded.counts().to_json());
  return json;
}

void run(Arguments arguments, const Context& context) {
  if (arguments.lookup && !arguments.draft.empty()) {
    throw Error(ErrorKind::usage, "--draft and --lookup exclude each other: one draft runs ahead at a time");
  }
  auto runtime = arguments.device.open();
  set_threads(arguments.threads, runtime);
  const auto text = text::ModelText::load(arguments.target);
  const std::vector<int64_t> prompt = prompt_ids(arguments, *text);
  const std::shared_ptr<const target::Target> target =
      target::Target::load(arguments.target, target::parse_precision(arguments.dtype), runtime);
  choose_threads(arguments.threads, *target, *text, runtime);
  decode::DecodeOptions& options = arguments.options;
  if (options.sampling.stop_ids.empty()) options.sampling.stop_ids = target->config().eos_ids;
  options.sampling.vocabulary = text->tokenizer()->vocab_size();
  std::unique_ptr<draft::Proposer> proposer;
  if (arguments.lookup) proposer = std::make_unique<decode::PromptLookup>();
  if (!arguments.draft.empty()) {
    const fs::path folder = train::best_draft(arguments.draft);
    train::warn_of_another_target(folder, arguments.target);
    proposer = draft::load_block_proposer(folder, target);
  }

  // Which drafts are verified depends on the clock, and with it which sample is drawn: a seed that someone asked for
  // must give the same text again.
  const bool repeatable = arguments.seeded && !options.sampling.greedy();
  decode::Pace pace;
  if (proposer && (arguments.pace == "on" || (arguments.pace == "auto" && !repeatable))) options.pace = &pace;

  text::TokenStream stream(text->tokenizer());
  const bool colour = proposer && has_colour(StandardStream::output);
  std::string written;
  options.on_token = [&](int64_t token, Origin origin) {
    const std::string piece = stream.push(token);
    written += piece;
    if (!context.json) context.print(coloured(piece, origin, colour));
  };
  const decode::Decoded decoded = proposer ? decode::decode_speculative(*target, *proposer, prompt, options)
                                           : decode::decode_plain(*target, prompt, options);
  const std::string rest = stream.finish();
  written += rest;
  if (context.json) {
    context.print_json(result_json(decoded, options.pace != nullptr, prompt, written));
    return;
  }
  context.print(rest + "\n");
  log_info(speed_line(decoded));
  if (colour) {
    log_info(styled("drafted", Style::green, has_colour(StandardStream::error)) + ", " +
             styled("corrected by the target", Style::yellow, has_colour(StandardStream::error)));
  }
}

}  // namespace

void add_generate(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  decode::DecodeOptions& options = arguments->options;
  CLI::App* command =
      app.add_subcommand("generate", "Let the model answer a prompt, with a draft ahead of it if given");
  command->add_option("--target", arguments->target, "Hugging Face folder or .gguf file")->required();
  command->add_option("--draft", arguments->draft, "A draft, or the run that trained it");
  command->add_flag("--lookup", arguments->lookup, "Draft by prompt lookup: what followed the same words before");
  command->add_option("--prompt", arguments->prompt, "What the user says; - reads it from stdin")->required();
  command->add_option("--system", arguments->system, "System message");
  command->add_flag("--raw", arguments->raw, "Continue the prompt as it is, without the chat template");
  command
      ->add_option("--dtype", arguments->dtype,
                   "Arithmetic of target and draft; stored: weights as a .gguf file has them")
      ->check(CLI::IsMember({"f32", "bf16", "stored", "stored-int8"}))
      ->capture_default_str();
  command->add_option("--max-new-tokens", options.sampling.max_new_tokens, "Longest text")->capture_default_str();
  command->add_option("--temperature", options.sampling.temperature, "0: the likeliest token")->capture_default_str();
  command->add_option("--top-p", options.sampling.top_p)->capture_default_str();
  command->add_option("--top-k", options.sampling.top_k, "0: all")->capture_default_str();
  CLI::Option* seed = command->add_option("--seed", options.sampling.seed)->capture_default_str();
  command
      ->add_option("--pace", arguments->pace,
                   "Draft only where it pays: on, off, or auto (on, unless a sampled text has a seed to repeat it by)")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  command
      ->add_option("--confidence-threshold", options.confidence_threshold,
                   "Cut proposals before the first token below it; 0: off")
      ->capture_default_str();
  command->add_option("--template-variables", arguments->variables,
                      "JSON object for the chat template, e.g. {\"enable_thinking\": false}");
  arguments->device.add_to(*command);
  add_threads(*command, arguments->threads);
  context.add_common(*command,
                     {"pacer generate --target model.gguf --prompt \"What is the capital of France?\"",
                      "pacer generate --target model --draft runs/first --prompt - < question.txt",
                      "pacer generate --target model --lookup --prompt \"Repeat: one two three\" --temperature 0.7"});
  command->callback([arguments, seed, &context] {
    arguments->seeded = seed->count() > 0;
    run(*arguments, context);
  });
}

}  // namespace pacer::cli
