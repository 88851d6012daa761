#include "pacer/workflow/generate_data.h"

#include <algorithm>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/progress.h"
#include "pacer/data/generated_rows.h"

namespace pacer::workflow {
namespace {

// Draws of an answer depend on its id, so a file that is continued or cut shorter has the same answers.
uint64_t sample_of(const std::string& id) {
  uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

std::string row_id(const data::Prompt& prompt, size_t turn) {
  return prompt.turns.size() == 1 ? prompt.id : prompt.id + "/" + std::to_string(turn + 1);
}

// The rows of a finished file: prompt after prompt, turn after turn.
std::vector<std::string> row_order(const std::vector<data::Prompt>& prompts) {
  std::vector<std::string> ids;
  for (const data::Prompt& prompt : prompts) {
    for (size_t turn = 0; turn < prompt.turns.size(); ++turn) ids.push_back(row_id(prompt, turn));
  }
  return ids;
}

// Tokenizers may have more tokens than the model has rows; that matters where such a token is used.
void require_rows(const std::vector<int64_t>& ids, const std::string& prompt, const text::Tokenizer& tokenizer,
                  int64_t rows) {
  const auto outside = std::ranges::find_if(ids, [&](int64_t id) { return id >= rows; });
  if (outside == ids.end()) return;
  throw Error(ErrorKind::data,
              "prompt " + prompt + ": token id " + std::to_string(*outside) + " ('" + tokenizer.id_to_token(*outside) +
                  "') is outside of the vocabulary of " + std::to_string(rows) + " of the target",
              "the tokenizer has tokens that the model does not know: leave them out of the prompt");
}

struct Question {
  std::string id;
  OrderedJson messages;
};

Json settings_of(const GenerateOptions& options, const text::ModelText& text, const decode::SamplingOptions& sampling,
                 at::ScalarType dtype) {
  return {{"schema", "pacer.generated-rows/1"},
          {"target", options.target_name},
          {"dtype", dtype == at::kFloat ? "f32" : "bf16"},
          {"template_crc32c", text.template_fingerprint()},
          {"system", options.system},
          {"variables", options.variables.dump()},
          {"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"max_new_tokens", sampling.max_new_tokens},
          {"stop_ids", sampling.stop_ids},
          {"seed", sampling.seed},
          {"keep_cut", options.keep_cut}};
}

}  // namespace

OrderedJson GenerateReport::to_json() const {
  OrderedJson dropped = OrderedJson::object();
  for (const auto& [reason, lines] : problems.lines_by_reason) dropped[reason] = lines;
  OrderedJson json;
  json["finished"] = finished;
  json["prompts"] = prompts;
  json["resumed"] = resumed;
  json["answered"] = answered;
  json["cut_dropped"] = cut_dropped;
  json["too_long"] = too_long;
  json["new_tokens"] = new_tokens;
  json["prompt_tokens"] = prompt_tokens;
  json["shared_prefix"] = statistics.shared_prefix;
  json["wall_s"] = wall_s;
  json["cpu_s"] = cpu_s;
  json["new_tokens_per_cpu_s"] = cpu_s > 0 ? static_cast<double>(new_tokens) / cpu_s : 0.0;
  json["problems"] = dropped;
  return json;
}

GenerateReport generate_data(const target::Target& target, const text::ModelText& text,
                             const GenerateOptions& options) {
  const Stopwatch watch;
  GenerateReport report;
  data::Prompts read = data::read_prompts(options.prompts, options.policy);
  report.problems = read.problems;
  if (options.limit > 0 && static_cast<int64_t>(read.prompts.size()) > options.limit) {
    read.prompts.resize(static_cast<size_t>(options.limit));
  }
  report.prompts = static_cast<int64_t>(read.prompts.size());

  decode::BatchOptions batch;
  batch.sampling = options.sampling;
  batch.sequences = options.sequences;
  if (options.states) batch.keep_states = true, batch.taps = options.states->taps();
  if (batch.sampling.stop_ids.empty()) batch.sampling.stop_ids = target.config().eos_ids;
  batch.sampling.vocabulary = text.tokenizer()->vocab_size();
  data::GeneratedRows rows(options.out, settings_of(options, text, batch.sampling, target.dtype()));
  if (rows.healed_bytes() > 0) {
    log_warning(options.out.string() + ": cut off a torn last line of " + std::to_string(rows.healed_bytes()) +
                " bytes; its prompt is answered again");
  }

  size_t turns = 0;
  int64_t total = 0;
  for (const data::Prompt& prompt : read.prompts) {
    turns = std::max(turns, prompt.turns.size());
    total += static_cast<int64_t>(prompt.turns.size());
  }
  report.resumed = rows.size();
  Progress progress("generate", static_cast<uint64_t>(total), {.unit = "answers"}, static_cast<uint64_t>(rows.size()));

  // Turn by turn: the second question of a conversation needs the answer to the first.
  for (size_t turn = 0; turn < turns && report.finished; ++turn) {
    std::vector<Question> questions;
    std::vector<decode::BatchRequest> requests;
    for (const data::Prompt& prompt : read.prompts) {
      if (prompt.turns.size() <= turn || rows.contains(row_id(prompt, turn))) continue;
      std::vector<std::string> answers;
      while (answers.size() < turn && rows.contains(row_id(prompt, answers.size()))) {
        answers.push_back(rows.answer(row_id(prompt, answers.size())));
      }
      if (answers.size() < turn) continue;  // an earlier answer was left out: the conversation ends there
      Question question{.id = row_id(prompt, turn), .messages = {}};
      data::Prompt asked = prompt;
      if (asked.system.empty()) asked.system = options.system;
      question.messages = asked.messages(turn, answers);
      std::vector<int64_t> ids = text.prompt_ids(question.messages, prompt.tools, options.variables);
      require_rows(ids, question.id, *text.tokenizer(), target.config().vocab_size);
      if (static_cast<int64_t>(ids.size()) + 1 >= target.config().max_position) {
        log_warning("prompt " + question.id + ": " + std::to_string(ids.size()) +
                    " tokens leave no room for an answer");
        ++report.too_long;
        continue;
      }
      requests.push_back({.sample = sample_of(question.id), .prompt = std::move(ids)});
      questions.push_back(std::move(question));
    }
    if (requests.empty()) continue;

    const auto statistics = decode::generate_batch(target, requests, batch, [&](const decode::BatchResult& result) {
      const Question& question = questions[result.request];
      const bool cut = result.finish != decode::Finish::stop;
      report.new_tokens += static_cast<int64_t>(result.tokens.size());
      if (cut && !options.keep_cut) {
        ++report.cut_dropped;
      } else {
        data::GeneratedRow row{.id = question.id,
                               .messages = question.messages,
                               .prompt_ids = requests[result.request].prompt,
                               .output_ids = result.tokens,
                               .finish_reason = cut ? "length" : "stop",
                               .text = text.tokenizer()->decode(result.tokens, /*skip_special_tokens=*/true)};
        row.messages.push_back({{"role", "assistant"}, {"content", row.text}});
        rows.append(row);
        ++report.answered;
        if (options.states) {
          std::vector<int64_t> ids = std::move(row.prompt_ids);
          ids.insert(ids.end(), row.output_ids.begin(), row.output_ids.end());
          options.states->put(row.id, std::move(ids), {result.states, result.log_sums});
        }
      }
      progress.update(static_cast<uint64_t>(report.resumed + report.answered + report.cut_dropped),
                      std::to_string(report.new_tokens) + " tokens");
      return !(options.stop_requested && options.stop_requested());
    });
    report.prompt_tokens += statistics.prompt_tokens;
    report.statistics = statistics;
    report.finished = !statistics.stopped;
  }
  if (report.finished) {
    rows.finish(row_order(read.prompts));
  } else {
    rows.sync();
  }
  progress.finish();
  report.wall_s = watch.wall();
  report.cpu_s = watch.cpu();
  return report;
}

}  // namespace pacer::workflow
