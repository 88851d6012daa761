#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/pacer/commands.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/bench/page.h"
#include "pacer/bench/run.h"

namespace pacer::cli {
namespace {

struct Arguments {
  bench::Request request;
  bool list = false;
  std::filesystem::path page;
};

std::string list_text(const OrderedJson& benches) {
  std::string text;
  for (const OrderedJson& bench : benches) {
    text += bench.at("bench").get<std::string>();
    if (!bench.at("available").get<bool>()) text += "  (not in this version)";
    text += "\n ";
    for (const OrderedJson& name : bench.at("cases")) text += " " + name.get<std::string>();
    text += "\n";
  }
  return text;
}

void run(const Arguments& arguments, const Context& context) {
  if (arguments.list) {
    const OrderedJson benches = bench::list_benches(arguments.request.settings.works);
    return context.json ? context.print_json(benches) : context.print(list_text(benches));
  }
  if (arguments.request.all != arguments.request.bench.empty()) {
    throw Error(ErrorKind::usage, "pacer bench: name one bench, or give --all",
                "'pacer bench --list' shows what there is");
  }
  std::vector<OrderedJson> lines;
  bench::run_benches(arguments.request, [&](const OrderedJson& line) {
    context.print(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
    lines.push_back(line);
  });
  if (!arguments.page.empty()) write_file(arguments.page, bench::render_page(lines));
  const auto failed =
      std::count_if(lines.begin(), lines.end(), [](const OrderedJson& line) { return line.contains("status"); });
  if (failed > 0) {
    throw Error(ErrorKind::resources,
                std::to_string(failed) + " of " + std::to_string(lines.size()) + " cases gave no figure",
                "'status' in their lines says why");
  }
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  bench::Request& request = arguments->request;
  bench::Settings& settings = request.settings;
  CLI::App* command = app.add_subcommand("bench", "Measure this machine and Pacer on it: one JSON line per case");
  command->add_option("name", request.bench, "What to measure; --list shows what there is");
  command->add_option("--case", request.cases, "Cases, separated by commas; all of the bench when not given")
      ->delimiter(',');
  command->add_flag("--all", request.all, "Every bench and case");
  command->add_flag("--list", arguments->list, "List benches and cases");
  CLI::Option* dtypes = command->add_option("--dtype", request.dtypes, "f32, bf16, or both separated by a comma");
  dtypes->delimiter(',')->check(CLI::IsMember({"f32", "bf16"}))->capture_default_str();
  command->add_option("--threads", settings.threads, "Threads of every case")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--repeat", settings.repeat, "So many times the timed steps of the case")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup", settings.warmup, "Steps before the timed ones, in place of the case's")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--steps", settings.steps, "Timed steps, in place of the case's")->check(CLI::PositiveNumber);
  command->add_option("--model", settings.model, "A Hugging Face folder or .gguf file in place of the case's model");
  command->add_option("--text", settings.text, "tokenizer: a file of text in place of the shipped one");
  command->add_flag("--check", settings.check,
                    "dspark_train: compare loss and gradient norm with a dense reference; gguf: logits with f32");
  command->add_option("--works", settings.works, "Definitions of the cases in place of data/bench/workloads.json");
  command->add_option("--html", arguments->page,
                      "Also write a page with every figure beside the limit that roofline measured in the same run");
  command->add_option("--timeout", request.timeout_s, "Seconds that a case may take; 0: any")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--in-process", request.in_process, "Run one case in this process, for profilers and debuggers");
  context.add_common(*command, {"pacer bench --list", "pacer bench decode --case smol-tg128 --dtype bf16 --threads 1",
                                "pacer bench dspark_train --case small-a64 --dtype f32 --check",
                                "pacer bench --all --html bench.html"});
  command->callback([arguments, dtypes, &context] {
    bench::Request& asked = arguments->request;
    if (asked.all && dtypes->count() == 0) asked.dtypes = {"f32", "bf16"};
    asked.with_roofline = !arguments->page.empty();
    run(*arguments, context);
  });
}

}  // namespace pacer::cli
