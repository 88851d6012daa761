#include "pacer/workflow/quickstart_evaluation.h"

#include <algorithm>
#include <memory>
#include <utility>

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

std::vector<eval::Task> word_problems(const QuickstartEvaluation& evaluation) {
  return eval::read_tasks({evaluation.word_problems}, evaluation.problems);
}

std::vector<eval::Task> other_kinds(int64_t prompts) {
  const fs::path shipped = resource("data/prompts");
  return eval::read_tasks({shipped / "chat.jsonl", shipped / "code.jsonl", shipped / "questions.jsonl"}, prompts);
}

// Measures in one dtype and writes what came of it to one file.
class Measuring {
 public:
  Measuring(const QuickstartEvaluation& evaluation, at::ScalarType dtype, device::Runtime& runtime)
      : evaluation_(evaluation),
        timed_(dtype == at::kBFloat16),
        runtime_(runtime),
        target_(target::Target::load(evaluation.model, dtype, runtime)),
        proposer_(draft::load_block_proposer(evaluation.draft, target_)),
        text_(text::ModelText::load(evaluation.model)),
        words_(eval::words_of(text_)) {
    options_.sampling.max_new_tokens = evaluation.new_tokens;
    options_.sampling.vocabulary = text_->tokenizer()->vocab_size();
  }

  // bf16 is timed, with the pacing rule, alone or beside the other ways; in f32 texts are compared and pace is off.
  void run(const std::vector<eval::Task>& tasks, eval::PaceUse pace, const std::string& what) {
    uint64_t total = 0;
    for (const eval::Task& task : tasks) total += task.prompts.size();
    pacer::Progress progress(what, total, {.unit = "prompts"});
    options_.pace = pace;
    options_.lookup = pace == eval::PaceUse::on;
    options_.on_progress = [&](const eval::Progress& now) {
      if (evaluation_.stop_requested && evaluation_.stop_requested()) throw Stopped{};
      progress.update(static_cast<uint64_t>(now.done), now.task);
    };
    std::vector<eval::TaskResult> results =
        timed_ ? eval::measure(*target_, proposer_.get(), tasks, words_, options_)
               : eval::measure_in_lanes(
                     *target_, [&] { return draft::load_block_proposer(evaluation_.draft, target_); }, tasks, words_,
                     options_, evaluation_.lanes);
    progress.finish();
    for (eval::TaskResult& result : results) results_.push_back(std::move(result));
  }

  std::vector<eval::TaskResult> write() {
    const eval::Setup setup{.target = evaluation_.model.string(),
                            .draft = evaluation_.draft.string(),
                            .draft_method = proposer_->name(),
                            .dtype = timed_ ? "bf16" : "f32",
                            .threads = timed_ ? runtime_.threads() : 1};
    write_file(evaluation_.folder / (timed_ ? "evaluation.json" : "evaluation_f32.json"),
               eval::result_json(setup, options_, results_).dump(2) + "\n");
    return std::move(results_);
  }

 private:
  const QuickstartEvaluation& evaluation_;
  const bool timed_;
  device::Runtime& runtime_;
  const std::shared_ptr<const target::Target> target_;
  const std::unique_ptr<draft::Proposer> proposer_;
  const std::shared_ptr<const text::ModelText> text_;
  const eval::Words words_;
  eval::MeasureOptions options_;
  std::vector<eval::TaskResult> results_;
};

std::vector<eval::TaskResult> measure_times(const QuickstartEvaluation& evaluation, device::Runtime& runtime) {
  Measuring measuring(evaluation, at::kBFloat16, runtime);
  if (!evaluation.others_whole) {
    measuring.run(other_kinds(evaluation.others), eval::PaceUse::only, "evaluate other kinds");
  }
  std::vector<eval::Task> tasks = word_problems(evaluation);
  if (evaluation.others_whole) {
    for (eval::Task& task : other_kinds(evaluation.others)) tasks.push_back(std::move(task));
  }
  measuring.run(tasks, eval::PaceUse::on, "evaluate");
  return measuring.write();
}

std::vector<eval::TaskResult> compare_texts(const QuickstartEvaluation& evaluation, device::Runtime& runtime) {
  Measuring measuring(evaluation, at::kFloat, runtime);
  std::vector<eval::Task> tasks = word_problems(evaluation);
  for (eval::Task& task : other_kinds(evaluation.exact_others)) tasks.push_back(std::move(task));
  measuring.run(tasks, eval::PaceUse::off, "compare texts in f32");
  return measuring.write();
}

Json number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

Json evaluate_quickstart(const QuickstartEvaluation& evaluation, device::Runtime& runtime) {
  try {
    const auto timed = measure_times(evaluation, runtime);
    const auto exact = compare_texts(evaluation, runtime);
    Json domains = Json::object();
    for (const eval::TaskResult& task : timed) {
      const auto same = std::ranges::find(exact, task.name, &eval::TaskResult::name);
      const eval::Summary summary = eval::summarise({task}), in_f32 = eval::summarise({*same});
      const eval::Totals& paced = *summary.paced;
      Json domain = {{"trained", evaluation.mixed || task.name == evaluation.word_problems.stem().string()},
                     {"prompts", summary.prompts},
                     {"prompts_f32", in_f32.prompts},
                     {"identical_f32", *in_f32.speculative->identical},
                     {"identical_bf16", *paced.identical},
                     {"paced",
                      {{"acceptance_length", number(paced.counts.acceptance_length())},
                       {"speedup_cpu", paced.cpu->value},
                       {"speedup_wall", paced.wall->value},
                       {"identical_bf16", *paced.identical}}}};
      if (const auto& drafted = summary.speculative) {
        domain.update({{"acceptance_length", number(drafted->counts.acceptance_length())},
                       {"speedup_cpu", drafted->cpu->value},
                       {"speedup_wall", drafted->wall->value},
                       {"identical_bf16", *drafted->identical}});
      } else {
        domain.update({{"acceptance_length", nullptr}, {"speedup_cpu", nullptr}, {"speedup_wall", nullptr}});
      }
      domain["lookup"] = {{"acceptance_length", nullptr}, {"speedup_cpu", nullptr}};
      if (const auto& lookup = summary.lookup) {
        domain["lookup"] = {{"acceptance_length", number(lookup->counts.acceptance_length())},
                            {"speedup_cpu", lookup->cpu->value}};
      }
      domains[task.name] = std::move(domain);
    }
    return domains;
  } catch (const Stopped&) {
    return nullptr;
  }
}

}  // namespace pacer::workflow
