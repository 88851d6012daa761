#include "pacer/eval/repeats.h"

#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/base/numbers.h"
#include "pacer/eval/summary.h"

namespace pacer::eval {
namespace {

struct Way {
  const char* name;
  std::optional<Totals> Summary::* totals;
};
constexpr Way kWays[] = {
    {"paced", &Summary::paced}, {"speculative", &Summary::speculative}, {"lookup", &Summary::lookup}};

const Way& way_of(const std::vector<std::vector<TaskResult>>& runs) {
  if (!runs.empty()) {
    const Summary all = summarise(runs.front());
    for (const Way& way : kWays) {
      if (all.*way.totals) return way;
    }
  }
  throw Error(ErrorKind::bug, "repeats: nothing was measured beside plain decoding");
}

const RepeatedSpeedUp& slowest(const std::vector<RepeatedSpeedUp>& tasks) {
  return *std::min_element(tasks.begin(), tasks.end(),
                           [](const auto& a, const auto& b) { return a.median < b.median; });
}

}  // namespace

std::vector<RepeatedSpeedUp> repeated_speed_ups(const std::vector<std::vector<TaskResult>>& runs) {
  const Way& way = way_of(runs);
  std::vector<RepeatedSpeedUp> tasks;
  for (size_t i = 0; i < runs.front().size(); ++i) {
    RepeatedSpeedUp task{runs.front()[i].name, {}};
    if (runs.front()[i].turns.empty()) continue;
    for (const auto& run : runs) {
      if (run.size() != runs.front().size() || run[i].name != task.task) {
        throw Error(ErrorKind::bug, "repeats: the runs are of different tasks");
      }
      const Summary summary = summarise({run[i]});
      task.runs.push_back((summary.*way.totals)->cpu->value);
    }
    std::vector<double> sorted = task.runs;
    std::sort(sorted.begin(), sorted.end());
    const size_t n = sorted.size();
    task.median = 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
    task.smallest = sorted.front(), task.largest = sorted.back();
    tasks.push_back(std::move(task));
  }
  return tasks;
}

OrderedJson repeats_json(const std::vector<std::vector<TaskResult>>& runs) {
  const std::vector<RepeatedSpeedUp> speed_ups = repeated_speed_ups(runs);
  OrderedJson tasks = OrderedJson::object();
  for (const RepeatedSpeedUp& task : speed_ups) {
    tasks[task.task] = {
        {"median", task.median}, {"smallest", task.smallest}, {"largest", task.largest}, {"runs", task.runs}};
  }
  OrderedJson json;
  json["runs"] = runs.size();
  json["way"] = way_of(runs).name;
  json["tasks"] = std::move(tasks);
  json["slowest"] = nullptr;
  if (!speed_ups.empty()) json["slowest"] = {{"task", slowest(speed_ups).task}, {"median", slowest(speed_ups).median}};
  return json;
}

std::string repeats_table(const std::vector<std::vector<TaskResult>>& runs) {
  const std::vector<RepeatedSpeedUp> speed_ups = repeated_speed_ups(runs);
  std::vector<std::vector<std::string>> rows = {{"task", "median", "smallest", "largest"}};
  for (const RepeatedSpeedUp& task : speed_ups) {
    rows.push_back(
        {task.task, format_fixed(task.median, 3), format_fixed(task.smallest, 3), format_fixed(task.largest, 3)});
  }
  std::string text = std::string("speed-up in CPU time, ") + way_of(runs).name + " against plain, of " +
                     std::to_string(runs.size()) + " runs\n" + text_table(rows);
  if (!speed_ups.empty()) {
    text += "slowest: " + slowest(speed_ups).task + " " + format_fixed(slowest(speed_ups).median, 3) + "\n";
  }
  return text;
}

}  // namespace pacer::eval
