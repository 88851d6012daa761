#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/pacer/commands.h"
#include "apps/pacer/device_options.h"
#include "pacer/base/error.h"
#include "pacer/base/numbers.h"
#include "pacer/conformance/run.h"
#include "pacer/device/doctor.h"
#include "pacer/device/rules.h"

namespace pacer::cli {
namespace {

struct Arguments {
  DeviceOptions device;
  std::string selftest, describe, probe;
  int seeds = 3;
  bool probes = true;
};

std::string program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::string outcome_line(const conformance::Outcome& outcome) {
  std::string line = std::string(conformance::name_of(outcome.status)) + "  ";
  line.resize(10, ' ');
  line += outcome.check;
  line.resize(std::max<size_t>(line.size() + 1, 40), ' ');
  return line + format_fixed(outcome.seconds, 1) + " s  " +
         (outcome.message.empty() ? outcome.shows : outcome.message) + "\n";
}

// Runs the checks and says so as a report that somebody else can read.
void selftest(const Arguments& arguments, const Context& context) {
  device::turn_on_refusals(arguments.selftest);
  device::Runtime runtime = device::Runtime::open(arguments.selftest);
  const std::vector<std::string> rules = device::switches_on(runtime.plugin());
  OrderedJson report = {{"device", device::device_report(runtime, program(), /*probe=*/false)},
                        {"environment", device::environment_report(runtime)}};
  report["switches_on"] = rules;
  if (!context.json) {
    context.print(device::doctor_text(report));
    std::string line;
    for (const std::string& rule : rules) line += (line.empty() ? "\nRules and checks that are on: " : ", ") + rule;
    context.print((line.empty() ? line : line + "\n") + "\nChecks\n");
  }
  const auto outcomes = conformance::run_all(runtime, arguments.seeds, [&](const conformance::Outcome& outcome) {
    if (!context.json) context.print(outcome_line(outcome));
  });
  report["checks"] = conformance::to_json(outcomes);
  report["passed"] = conformance::all_passed(outcomes);
  if (context.json) context.print_json(report);
  if (!conformance::all_passed(outcomes)) {
    throw Error(ErrorKind::device, "device " + runtime.name() + " failed checks",
                "a report of this output, with the versions of driver and vendor software, helps to mend it");
  }
}

void run(const Arguments& arguments, const Context& context) {
  if (!arguments.describe.empty()) return context.print_json(device::describe(arguments.describe));
  if (!arguments.selftest.empty()) return selftest(arguments, context);
  if (!arguments.probe.empty()) {
    const device::Runtime runtime = arguments.device.open();
    return context.print_json(device::probe_report(runtime, arguments.probe));
  }
  // The list first: it must appear even when the device that was asked for cannot be opened.
  OrderedJson report = {{"back_ends", device::back_ends_report(program())}};
  const device::Runtime runtime = arguments.device.open();
  report["device"] = device::device_report(runtime, program(), arguments.probes);
  report["environment"] = device::environment_report(runtime);
  if (context.json) {
    context.print_json(report);
  } else {
    context.print(device::doctor_text(report));
  }
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("doctor", "What this machine computes on: devices, capabilities, settings, and a self-test");
  arguments->device.add_to(*command);
  command->add_option("--selftest", arguments->selftest, "Run the conformance checks on this device and report");
  command->add_option("--seeds", arguments->seeds, "Seeds of delays that a simulated device is tried with")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("!--no-probes", arguments->probes, "Do not try what the device promises");
  // What it asks of itself in a process of its own.
  command->add_option("--describe", arguments->describe)->group("");
  command->add_option("--probe", arguments->probe)->group("");
  context.add_common(*command, {"pacer doctor", "pacer doctor --json", "pacer doctor --selftest auto"});
  command->callback([arguments, &context] { run(*arguments, context); });
}

}  // namespace pacer::cli
