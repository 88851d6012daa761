#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "apps/pacer/commands.h"
#include "pacer/base/numbers.h"
#include "pacer/data/rows.h"
#include "pacer/train/draft_setup.h"
#include "pacer/train/feature_source.h"

namespace pacer::cli {
namespace {

struct Arguments {
  std::filesystem::path rows;
  data::RowOptions options;
  std::filesystem::path target;
  int64_t taps = 5;
};

// What training computes with if it keeps the features of all rows: `taps` layers and the last one, in bf16.
uint64_t bytes_of_features(const Arguments& arguments, int64_t tokens) {
  return train::feature_bytes(tokens, train::read_target_config(arguments.target), static_cast<size_t>(arguments.taps),
                              at::kBFloat16);
}

void run(const Arguments& arguments, const Context& context) {
  const data::Rows rows = data::read_rows(arguments.rows, arguments.options);
  int64_t tokens = 0, supervised = 0, longest = 0;
  for (const data::TokenRow& row : rows.rows) {
    tokens += static_cast<int64_t>(row.ids.size());
    longest = std::max(longest, static_cast<int64_t>(row.ids.size()));
    for (const uint8_t one : row.supervised) supervised += one;
  }
  const double mean = rows.rows.empty() ? 0.0 : static_cast<double>(tokens) / static_cast<double>(rows.rows.size());
  if (context.json) {
    OrderedJson dropped = OrderedJson::object();
    for (const auto& [reason, lines] : rows.problems.lines_by_reason) dropped[reason] = lines;
    context.print_json({{"rows", rows.rows.size()},
                        {"tokens", tokens},
                        {"supervised_tokens", supervised},
                        {"longest", longest},
                        {"mean", mean},
                        {"feature_bytes",
                         arguments.target.empty() ? OrderedJson() : OrderedJson(bytes_of_features(arguments, tokens))},
                        {"dropped", rows.problems.dropped()},
                        {"dropped_lines_by_reason", dropped}});
    return;
  }
  std::string text = arguments.rows.string() + ": " + std::to_string(rows.rows.size()) + " rows, " +
                     std::to_string(tokens) + " tokens, " + std::to_string(supervised) + " supervised, longest row " +
                     std::to_string(longest) + ", mean " + format_fixed(mean, 1) + "\n";
  if (!arguments.target.empty()) {
    text += "  features of all rows: " + format_bytes(bytes_of_features(arguments, tokens)) + " (features.memory_mb)\n";
  }
  for (const auto& [reason, lines] : rows.problems.lines_by_reason) {
    text += "  dropped " + std::to_string(lines.size()) + ": " + reason + " (lines";
    for (size_t i = 0; i < lines.size() && i < 8; ++i) text += (i == 0 ? " " : ", ") + std::to_string(lines[i]);
    text += lines.size() > 8 ? ", ...)\n" : ")\n";
  }
  context.print(text);
}

}  // namespace

void add_data_check(CLI::App& data, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      data.add_subcommand("check", "Count the rows that training would use, and what it would drop and why");
  command->add_option("rows", arguments->rows, "File written by `pacer data generate`")->required();
  command->add_option("--max-length", arguments->options.max_length, "Longer rows are cut")->capture_default_str();
  command->add_option("--minimum-supervised", arguments->options.minimum_supervised, "Answer tokens in a row")
      ->capture_default_str();
  command->add_option("--vocab-size", arguments->options.vocab_size, "Ids must lie below; 0: not checked")
      ->capture_default_str();
  command->add_option("--target", arguments->target, "Also say how large the features of all rows are");
  command->add_option("--taps", arguments->taps, "Layers of the target that a draft reads, besides the last")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  context.add_common(*command, {"pacer data check rows.jsonl", "pacer data check rows.jsonl --target model",
                                "pacer data check rows.jsonl --max-length 2048 --json"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
