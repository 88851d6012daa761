#include "pacer/workflow/quickstart_evaluation.h"

#include "pacer/base/files.h"
#include "pacer/base/progress.h"
#include "pacer/base/resources.h"
#include "pacer/draft/block_proposer.h"
#include "pacer/eval/lanes.h"
#include "pacer/eval/measure.h"
#include "pacer/eval/summary.h"
#include "pacer/eval/task.h"
#include "pacer/target/target.h"
#include "pacer/text/model_text.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;

struct Stopped {};

std::vector<eval::TaskResult> measure(const QuickstartEvaluation& evaluation, at::ScalarType dtype, int64_t prompts,
                                      bool lookup, device::Runtime& runtime) {
  const std::shared_ptr<const target::Target> target = target::Target::load(evaluation.model, dtype, runtime);
  const auto proposer = draft::load_block_proposer(evaluation.draft, target);
  const fs::path shipped = resource("data/prompts");
  const auto tasks = eval::read_tasks(
      {evaluation.word_problems, shipped / "chat.jsonl", shipped / "code.jsonl", shipped / "questions.jsonl"}, prompts);
  const bool timed = dtype == at::kBFloat16;
  uint64_t total = 0;
  for (const eval::Task& task : tasks) total += task.prompts.size();
  pacer::Progress progress(timed ? "evaluate" : "compare texts in f32", total, {.unit = "prompts"});
  eval::MeasureOptions options;
  options.sampling.max_new_tokens = evaluation.new_tokens;
  options.lookup = lookup;
  if (timed) options.pace = eval::PaceUse::on;
  options.on_progress = [&](const eval::Progress& now) {
    if (evaluation.stop_requested && evaluation.stop_requested()) throw Stopped{};
    progress.update(static_cast<uint64_t>(now.done), now.task);
  };
  const auto text = text::ModelText::load(evaluation.model);
  const eval::Words words = eval::words_of(text);
  options.sampling.vocabulary = text->tokenizer()->vocab_size();
  std::vector<eval::TaskResult> results =
      timed ? eval::measure(*target, proposer.get(), tasks, words, options)
            : eval::measure_in_lanes(
                  *target, [&] { return draft::load_block_proposer(evaluation.draft, target); }, tasks, words, options,
                  evaluation.lanes);
  progress.finish();

  const eval::Setup setup{.target = evaluation.model.string(),
                          .draft = evaluation.draft.string(),
                          .draft_method = proposer->name(),
                          .dtype = timed ? "bf16" : "f32",
                          .threads = timed ? runtime.threads() : 1};
  write_file(evaluation.folder / (timed ? "evaluation.json" : "evaluation_f32.json"),
             eval::result_json(setup, options, results).dump(2) + "\n");
  return results;
}

Json number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

Json evaluate_quickstart(const QuickstartEvaluation& evaluation, device::Runtime& runtime) {
  try {
    const auto timed = measure(evaluation, at::kBFloat16, evaluation.prompts, /*lookup=*/true, runtime);
    const auto exact = measure(evaluation, at::kFloat, evaluation.exact_prompts, /*lookup=*/false, runtime);
    Json domains = Json::object();
    for (size_t i = 0; i < timed.size(); ++i) {
      const eval::Summary summary = eval::summarise({timed[i]}), in_f32 = eval::summarise({exact[i]});
      domains[timed[i].name] = {
          {"trained", evaluation.mixed || timed[i].name == evaluation.word_problems.stem().string()},
          {"prompts", summary.prompts},
          {"prompts_f32", in_f32.prompts},
          {"acceptance_length", number(summary.speculative->counts.acceptance_length())},
          {"speedup_cpu", summary.speculative->cpu->value},
          {"speedup_wall", summary.speculative->wall->value},
          {"identical_f32", *in_f32.speculative->identical},
          {"identical_bf16", *summary.speculative->identical},
          {"paced",
           {{"acceptance_length", number(summary.paced->counts.acceptance_length())},
            {"speedup_cpu", summary.paced->cpu->value},
            {"speedup_wall", summary.paced->wall->value},
            {"identical_bf16", *summary.paced->identical}}},
          {"lookup",
           {{"acceptance_length", number(summary.lookup->counts.acceptance_length())},
            {"speedup_cpu", summary.lookup->cpu->value}}}};
    }
    return domains;
  } catch (const Stopped&) {
    return nullptr;
  }
}

}  // namespace pacer::workflow
