#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/pacer/commands.h"
#include "apps/pacer/device_options.h"
#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/parallel/gate.h"

namespace pacer::cli {
namespace {

struct Arguments {
  parallel::GateOptions options;
  DeviceOptions device;
  bool through_host = false;
  std::vector<int64_t> part = {1, 1};
  double timeout_s = 600;
};

std::string line_of(const parallel::GateResult& result) {
  std::string text = (result.passed ? "passed  " : "FAILED  ") + format_fixed(result.seconds, 1) + " s  " + result.name;
  return text + (result.passed ? "\n" : "\n        " + result.failure + "\n");
}

void run(const Arguments& arguments, const Context& context) {
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(arguments.timeout_s * 1e3));
  const parallel::LaunchEnvironment environment = parallel::read_launch_environment();
  if (environment.world == 1) {
    throw Error(ErrorKind::usage, "pacer gate: there is only one rank", "pacer launch -n 4 -- pacer gate");
  }
  // Bound to its device before it meets the others.
  const device::Runtime runtime = arguments.device.open();
  parallel::World world(environment, {.timeout = timeout, .runtime = runtime, .through_host = arguments.through_host});
  parallel::GateOptions options = arguments.options;
  options.device = runtime.device();
  options.part = arguments.part[0], options.parts = arguments.part[1];
  const auto results = parallel::run_gate(world, options, [&](const parallel::GateResult& result) {
    if (world.rank() == 0 && !context.json) context.print(line_of(result));
    if (world.rank() != 0 && !result.passed) {
      log_warning("rank " + std::to_string(world.rank()) + ", " + result.name + ": " + result.failure);
    }
  });
  const auto failed = std::count_if(results.begin(), results.end(), [](const auto& result) { return !result.passed; });
  if (world.rank() == 0 && context.json) {
    OrderedJson cases = OrderedJson::array();
    for (const auto& result : results) cases.push_back(result.to_json());
    context.print_json({{"device", runtime.product()}, {"ranks", world.size()}, {"failed", failed}, {"cases", cases}});
  } else if (world.rank() == 0) {
    context.print(std::to_string(results.size() - static_cast<size_t>(failed)) + " of " +
                  std::to_string(results.size()) + " passed on " + runtime.product() + "\n");
  }
  if (failed > 0) {
    throw Error(ErrorKind::communication, std::to_string(failed) + " cases of the gate failed",
                "results depend on the mesh: do not trust trainings of this build");
  }
}

}  // namespace

void add_gate(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  parallel::GateOptions& options = arguments->options;
  options.folder = std::filesystem::temp_directory_path() / "pacer-gate";
  CLI::App* command =
      app.add_subcommand("gate", "Prove that training gives the same bits on every mesh of these ranks");
  command->add_flag("--full", options.full, "Every combination of settings instead of every pair");
  command
      ->add_option("--part", arguments->part,
                   "I,N: every N-th case from the I-th on; N machines, or N days, share the work of --full")
      ->expected(2)
      ->delimiter(',')
      ->capture_default_str();
  command->add_flag("--faults", options.faults, "Also show the gate planted faults, which it must find");
  command->add_option("--updates", options.updates, "Updates per case")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  command->add_option("--folder", options.folder, "Where checkpoints are left for a moment; all ranks must reach it")
      ->capture_default_str();
  command->add_option("--timeout", arguments->timeout_s, "Seconds after which a message counts as lost")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--through-host", arguments->through_host,
                    "Send through host memory also where the device has collectives");
  arguments->device.add_to(*command);
  context.add_common(*command, {"pacer launch -n 4 -- pacer gate --faults --device cpu",
                                "torchrun --no-python --nproc-per-node 8 "
                                "pacer gate --folder /shared/gate"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
