// From the start of a process to its first result, as a user waits for it.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/json.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/child_process.h"

namespace pacer::bench {
namespace {

// Without what Pacer sets for itself: a user's shell does not have it.
Ended start(const Settings& settings, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), settings.program.string());
  const Ended ended = run_program(
      arguments, {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS=" + std::to_string(settings.threads)}, 0);
  if (ended.signal != 0 || ended.exit_code != 0 || ended.out.empty()) {
    throw Error(ErrorKind::bug, "pacer " + arguments.at(1) + " ended with code " + std::to_string(ended.exit_code) +
                                    ", signal " + std::to_string(ended.signal));
  }
  return ended;
}

Timings repeat(const Settings& settings, const std::function<Ended()>& run, bool to_output) {
  constexpr int64_t kStarts = 3;
  Timings timings;
  for (int64_t i = 0; i < settings.repeat * settings.steps.value_or(kStarts); ++i) {
    const Ended ended = run();
    timings.wall.push_back(to_output ? ended.first_output_s : ended.wall_s);
    timings.cpu.push_back(ended.cpu_s);
    timings.peak_rss_mb = std::max(timings.peak_rss_mb, ended.peak_rss_mb);
  }
  return timings;
}

}  // namespace

Result coldstart(const Work& work, const Settings& settings, device::Runtime&) {
  Result result;
  start(settings, {"--version"});  // the pages of program and libraries are in memory from now on
  if (work.name() == "help") {
    result.timings = repeat(settings, [&] { return start(settings, {"--help"}); }, false);
    const Ended version = start(settings, {"--version"});
    result.work = {{"command", "pacer --help"},
                   {"until", "end of the process"},
                   {"version_wall_s", version.wall_s},
                   {"version_cpu_s", version.cpu_s}};
    return result;
  }
  if (work.name() != "first-step") {
    throw Error(ErrorKind::format, "coldstart: the case is '" + work.name() + "', allowed: 'help', 'first-step'");
  }
  const std::string name = work.has("step_case") ? work.text("step_case") : "small-a64";
  std::vector<std::string> arguments = {"bench",        "dspark_train",
                                        "--case",       name,
                                        "--dtype",      settings.dtype,
                                        "--threads",    std::to_string(settings.threads),
                                        "--warmup",     "0",
                                        "--steps",      "1",
                                        "--in-process", "--quiet"};
  if (!settings.works.empty()) arguments.insert(arguments.end(), {"--works", settings.works.string()});
  OrderedJson line;
  result.timings = repeat(
      settings,
      [&] {
        Ended ended = start(settings, arguments);
        line = parse_ordered_json(ended.out, "the output of dspark_train", ErrorKind::bug);
        return ended;
      },
      true);
  result.loss = line.at("loss").get<double>();
  result.work = {{"command", "pacer bench dspark_train --case " + name + " --steps 1 --warmup 0"},
                 {"until", "its line; CPU time until its end"},
                 {"step_s", line.at("median_s")},
                 {"step_cpu_s", line.at("cpu_median_s")}};
  return result;
}

}  // namespace pacer::bench
