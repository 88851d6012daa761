#include <filesystem>
#include <memory>
#include <string>

#include "apps/pacer/commands.h"
#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/workflow/report/report.h"

namespace pacer::cli {
namespace {

struct Arguments {
  std::filesystem::path run, out;
};

void run(const Arguments& arguments, const Context& context) {
  const workflow::ReportData data = workflow::read_report(arguments.run);
  const std::filesystem::path out = arguments.out.empty() ? arguments.run / "report.html" : arguments.out;
  const std::string page = workflow::render_report(data);
  write_file(out, page);
  if (context.json) {
    context.print_json(
        {{"report", std::filesystem::absolute(out).string()}, {"bytes", page.size()}, {"title", data.title}});
  } else {
    context.print(out.string() + "\n");
  }
}

}  // namespace

void add_report(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("report", "Write one HTML page about a run: curves, acceptance, speed-up, settings");
  command->add_option("run", arguments->run, "Folder of a training run, an evaluation or a quickstart")->required();
  command->add_option("--out", arguments->out, "File to write (default: RUN/report.html)");
  context.add_common(*command, {"pacer report quickstart", "pacer report runs/first --out first.html"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
