#include "pacer/workflow/stages.h"

#include <malloc.h>

#include <ctime>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer::workflow {
namespace {

constexpr const char* kSchema = "pacer.stage/1";

double seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

StageBook::StageBook(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code code;
  std::filesystem::create_directories(folder_ / "stages", code);
  if (code) {
    throw Error(ErrorKind::resources, (folder_ / "stages").string() + ": cannot be created: " + code.message(),
                "choose a folder that this user may write to");
  }
  lock_ =
      std::make_unique<const FileLock>(folder_ / "stages" / "lock", folder_.string() + ": another process works in it",
                                       "wait for it or stop it, or choose another folder");
}

std::filesystem::path StageBook::file(const std::string& name) const { return folder_ / "stages" / (name + ".json"); }

Json StageBook::record(const std::string& name) const {
  if (!std::filesystem::exists(file(name))) {
    throw Error(ErrorKind::bug, "stage '" + name + "' has no record in " + folder_.string());
  }
  Json found = read_json(file(name), uint64_t{64} << 20);
  if (!found.is_object() || found.value("schema", "") != kSchema || !found.contains("inputs") ||
      !found.contains("result")) {
    throw Error(ErrorKind::data, file(name).string() + ": not a stage record of this version (" + kSchema + ")",
                "remove the file; the stage is then done again");
  }
  return found;
}

bool StageBook::finished(const std::string& name, const Json& inputs) const {
  return std::filesystem::exists(file(name)) && record(name).at("inputs") == inputs;
}

Json StageBook::run(const std::string& name, const Json& inputs, const std::function<Json()>& body) {
  if (finished(name, inputs)) return record(name).at("result");
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  const Json result = body();
  // What a stage freed lies between what later stages keep; the allocator would hold it until the end (over 1 GB after
  // the answers of a quickstart).
  ::malloc_trim(0);
  const Json entry = {{"schema", kSchema},
                      {"inputs", inputs},
                      {"result", result},
                      {"wall_s", seconds(CLOCK_MONOTONIC) - wall},
                      {"cpu_s", seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu}};
  write_file(file(name), entry.dump(2) + "\n");
  return result;
}

}  // namespace pacer::workflow
