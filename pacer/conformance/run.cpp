#include "pacer/conformance/run.h"

#include <algorithm>
#include <filesystem>

#include <unistd.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/device/names.h"
#include "pacer/device/plugin.h"

namespace pacer::conformance {
namespace {

namespace fs = std::filesystem;

// Exists for the life of the object.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "pacer-check-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw Error(ErrorKind::resources, "no folder can be made in " + fs::temp_directory_path().string());
    }
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code code;
    fs::remove_all(path_, code);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class KeptKernelPaths {
 public:
  ~KeptKernelPaths() { device::use_kernel_paths(paths_); }

 private:
  device::KernelPaths paths_ = device::kernel_paths();
};

}  // namespace

const char* name_of(Outcome::Status status) {
  switch (status) {
    case Outcome::Status::passed:
      return "passed";
    case Outcome::Status::failed:
      return "failed";
    case Outcome::Status::left_out:
      return "left out";
  }
  return "unknown";
}

Outcome run(const Check& check, device::Runtime& runtime, device::Runtime& host, int seeds, int first_seed) {
  Outcome outcome{check.name, check.shows, Outcome::Status::passed, "", 0};
  if (check.not_here != nullptr) outcome.message = check.not_here(runtime);
  if (!outcome.message.empty()) {
    outcome.status = Outcome::Status::left_out;
    return outcome;
  }
  const Stopwatch watch;
  const Scratch scratch;
  const KeptKernelPaths kept;
  try {
    Scene scene{runtime, host, scratch.path(), seeds, first_seed};
    check.run(scene);
    runtime.synchronize();  // errors of queued work belong to this check
  } catch (const std::exception& failure) {
    outcome.status = Outcome::Status::failed;
    outcome.message = failure.what();
    outcome.message = outcome.message.substr(0, outcome.message.find('\n'));
    const device::Plugin* plugin = runtime.plugin();
    if (plugin != nullptr && plugin->advice != nullptr) {
      if (const std::string hint = plugin->advice(failure.what()); !hint.empty()) outcome.message += " (" + hint + ")";
    }
  }
  outcome.seconds = watch.wall();
  return outcome;
}

std::vector<Outcome> run_all(device::Runtime& runtime, int seeds,
                             const std::function<void(const Outcome&)>& on_outcome) {
  device::Runtime host = device::Runtime::open(device::kHost);
  std::vector<Outcome> outcomes;
  for (const Check& check : all_checks()) {
    outcomes.push_back(run(check, runtime, host, seeds));
    on_outcome(outcomes.back());
  }
  return outcomes;
}

bool all_passed(const std::vector<Outcome>& outcomes) {
  return std::ranges::none_of(outcomes, [](const Outcome& o) { return o.status == Outcome::Status::failed; });
}

OrderedJson to_json(const std::vector<Outcome>& outcomes) {
  OrderedJson list = OrderedJson::array();
  for (const Outcome& outcome : outcomes) {
    list.push_back({{"check", outcome.check},
                    {"shows", outcome.shows},
                    {"status", name_of(outcome.status)},
                    {"message", outcome.message},
                    {"seconds", outcome.seconds}});
  }
  return list;
}

}  // namespace pacer::conformance
