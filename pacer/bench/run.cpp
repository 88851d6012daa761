#include "pacer/bench/run.h"

#include <sys/resource.h>

#include <csignal>
#include <new>

#include <c10/util/Exception.h>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/bench/child_process.h"
#include "pacer/device/names.h"
#include "pacer/parallel/launch_environment.h"

namespace pacer::bench {
namespace {

struct Case {
  std::string bench, name, dtype;  // dtype empty: none
};

std::vector<Case> cases_of(const Request& request, const Works& works) {
  std::vector<Case> cases;
  const auto add = [&](const std::string& bench, const std::vector<std::string>& names) {
    find_bench(bench);  // throws for one that this version cannot run
    for (const std::string& name : names) {
      const bool has_dtype = uses_dtype(works.work(bench, name));
      for (const std::string& dtype : has_dtype ? request.dtypes : std::vector<std::string>{""}) {
        cases.push_back({bench, name, dtype});
      }
    }
  };
  if (request.all) {
    for (const std::string& bench : works.benches()) {
      for (const Bench& known : all_benches()) {
        if (known.name == bench) add(bench, works.cases(bench));
      }
    }
    return cases;
  }
  const std::vector<std::string> all = works.cases(request.bench);
  add(request.bench, request.cases.empty() ? all : request.cases);
  if (request.with_roofline && request.bench != "roofline") add("roofline", works.cases("roofline"));
  return cases;
}

// What a machine has left, as a limit on what the case may allocate: it then ends with an error of its own instead of
// the kernel ending something.
void limit_memory(const Work& work, const device::Runtime& runtime) {
  uint64_t bytes = runtime.memory().available_bytes;
  if (work.has("mem_gb")) bytes = std::min(bytes, static_cast<uint64_t>(work.integer("mem_gb")) * 1'000'000'000u);
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? bytes : std::min<rlim_t>(bytes, limit.rlim_max);
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) log_warning("the memory of the case cannot be limited");
}

bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::string(error.what()).find("DefaultCPUAllocator") != std::string::npos;  // it has no type of its own
}

OrderedJson run_here(const Case& one, const Works& works, Settings settings) {
  settings.dtype = one.dtype.empty() ? settings.dtype : one.dtype;
  const Work work = works.work(one.bench, one.name);
  device::Runtime runtime = device::Runtime::open(device::kHost);
  runtime.set_threads(settings.threads);
  limit_memory(work, runtime);
  try {
    return to_json(find_bench(one.bench).run(work, settings, runtime), one.bench, one.name, settings.threads,
                   one.dtype);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    log_warning(one.bench + " " + one.name + ": out of memory");
    return status_json(one.bench, one.name, settings.threads, one.dtype, "oom", "out of memory");
  }
}

int64_t ranks_of(const Case& one, const Works& works) {
  const Bench& bench = find_bench(one.bench);
  return bench.ranks == nullptr ? 1 : bench.ranks(works.work(one.bench, one.name));
}

std::vector<std::string> command_line(const Case& one, const Request& request, int64_t ranks) {
  const Settings& settings = request.settings;
  const std::string program = settings.program.string();
  std::vector<std::string> words = {program};
  if (ranks > 1) words.insert(words.end(), {"launch", "-n", std::to_string(ranks), "--", program});
  words.insert(words.end(), {"bench", one.bench, "--case", one.name, "--threads", std::to_string(settings.threads),
                             "--in-process", "--quiet"});
  const auto add = [&](const std::string& option, const std::string& value) {
    words.push_back(option), words.push_back(value);
  };
  if (!request.settings.works.empty()) add("--works", request.settings.works.string());
  if (!one.dtype.empty()) add("--dtype", one.dtype);
  if (settings.repeat != 1) add("--repeat", std::to_string(settings.repeat));
  if (settings.warmup) add("--warmup", std::to_string(*settings.warmup));
  if (settings.steps) add("--steps", std::to_string(*settings.steps));
  if (!settings.model.empty()) add("--model", settings.model.string());
  if (!settings.text.empty()) add("--text", settings.text.string());
  if (settings.check) words.emplace_back("--check");
  return words;
}

OrderedJson run_in_child(const Case& one, const Request& request, int64_t ranks) {
  const Ended ended =
      run_program(command_line(one, request, ranks), {"OMP_NUM_THREADS=" + std::to_string(request.settings.threads)},
                  static_cast<double>(request.timeout_s));
  const auto status = [&](const std::string& name, const std::string& message) {
    return status_json(one.bench, one.name, request.settings.threads, one.dtype, name, message);
  };
  if (ended.timed_out) return status("timeout", "longer than " + std::to_string(request.timeout_s) + " s");
  // Nobody else sends this signal: the kernel had no memory left.
  if (ended.signal == SIGKILL) return status("oom", "ended by the kernel");
  if (ended.signal != 0) return status("error", "ended by signal " + std::to_string(ended.signal));
  // A case that ran out of memory by itself says so in its line and ends with a code.
  if (ended.exit_code != 0 && ended.out.empty()) return status("error", "exit code " + std::to_string(ended.exit_code));
  return parse_ordered_json(ended.out, "the output of " + one.bench + " " + one.name, ErrorKind::bug);
}

}  // namespace

void run_benches(const Request& request, const std::function<void(const OrderedJson& line)>& on_line) {
  const Works works = Works::read(request.settings.works.empty() ? Works::default_file() : request.settings.works);
  const std::vector<Case> cases = cases_of(request, works);
  if (request.in_process && cases.size() != 1) {
    throw Error(ErrorKind::usage,
                "one case at a time can run in this process, these are " + std::to_string(cases.size()),
                "name one with --case and one --dtype");
  }
  for (const Case& one : cases) {
    if (!request.in_process) {
      on_line(run_in_child(one, request, ranks_of(one, works)));
      continue;
    }
    const OrderedJson line = run_here(one, works, request.settings);
    // Of the ranks of one case the first speaks.
    if (ranks_of(one, works) == 1 || parallel::read_launch_environment().rank == 0) on_line(line);
  }
}

OrderedJson list_benches(const std::filesystem::path& file) {
  const Works works = Works::read(file.empty() ? Works::default_file() : file);
  OrderedJson list = OrderedJson::array();
  for (const std::string& bench : works.benches()) {
    bool available = false;
    for (const Bench& known : all_benches()) available = available || known.name == bench;
    list.push_back({{"bench", bench}, {"cases", works.cases(bench)}, {"available", available}});
  }
  return list;
}

}  // namespace pacer::bench
