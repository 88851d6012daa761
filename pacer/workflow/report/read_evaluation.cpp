#include "pacer/workflow/report/read_evaluation.h"

#include <algorithm>
#include <map>

#include "pacer/base/numbers.h"

namespace pacer::workflow {
namespace {

[[noreturn]] void wrong(const std::string& place, const std::string& field, const std::string& expected) {
  throw Error(ErrorKind::format, place + ": " + field + " is not " + expected,
              "was the file written by another version of Pacer?");
}

std::optional<double> number(const Json& object, const char* field, const std::string& place) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (!found->is_number()) wrong(place, field, "a number");
  return found->get<double>();
}

std::optional<bool> truth(const Json& object, const char* field, const std::string& place) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (!found->is_boolean()) wrong(place, field, "true, false or null");
  return found->get<bool>();
}

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

// The object of this name; null when it is absent or null.
const Json& object_or_null(const Json& parent, const char* field, const std::string& place) {
  static const Json null;
  if (!parent.is_object() || !parent.contains(field) || parent[field].is_null()) return null;
  if (!parent[field].is_object()) wrong(place, field, "an object");
  return parent[field];
}

KindResult kind_of(const std::string& name, const Json& object, const std::string& place) {
  if (!object.is_object()) wrong(place, name, "an object");
  KindResult kind;
  kind.name = spaced(name);
  kind.trained = truth(object, "trained", place).value_or(false);
  kind.prompts = static_cast<int64_t>(number(object, "prompts", place).value_or(0));
  kind.acceptance_length = number(object, "acceptance_length", place);
  kind.speedup_cpu = number(object, "speedup_cpu", place);
  kind.speedup_wall = number(object, "speedup_wall", place);
  kind.identical_f32 = truth(object, "identical_f32", place);
  kind.identical_bf16 = truth(object, "identical_bf16", place);
  kind.paced_speedup_cpu = number(object_or_null(object, "paced", place), "speedup_cpu", place + ": paced");
  if (const auto lookup = object.find("lookup"); lookup != object.end() && lookup->is_object()) {
    kind.lookup_acceptance_length = number(*lookup, "acceptance_length", place + ": lookup");
    kind.lookup_speedup_cpu = number(*lookup, "speedup_cpu", place + ": lookup");
  }
  return kind;
}

// Fills what `task` of a result says and the kind does not know yet.
void add_task(const Json& task, bool exact, const std::string& place, KindResult& kind) {
  const auto fill = [](auto& known, const auto& value) {
    if (!known) known = value;
  };
  if (kind.prompts == 0) kind.prompts = static_cast<int64_t>(number(task, "prompts", place).value_or(0));
  fill(kind.plain_tokens_per_s, number(object_or_null(task, "plain", place), "tokens_per_s", place));
  if (const Json& drafted = object_or_null(task, "speculative", place); !drafted.is_null()) {
    fill(kind.acceptance_length, number(drafted, "acceptance_length", place));
    fill(kind.speedup_cpu, number(drafted, "speedup_cpu", place));
    fill(kind.speedup_wall, number(drafted, "speedup_wall", place));
    fill(kind.speculative_tokens_per_s, number(drafted, "tokens_per_s", place));
    fill(exact ? kind.identical_f32 : kind.identical_bf16, truth(drafted, "identical", place));
    const Json& spread = object_or_null(drafted, "speedup_cpu_spread", place);
    fill(kind.speedup_low, number(spread, "low", place));
    fill(kind.speedup_high, number(spread, "high", place));
  }
  fill(kind.paced_speedup_cpu, number(object_or_null(task, "paced", place), "speedup_cpu", place));
  if (const Json& lookup = object_or_null(task, "lookup", place); !lookup.is_null()) {
    fill(kind.lookup_acceptance_length, number(lookup, "acceptance_length", place));
    fill(kind.lookup_speedup_cpu, number(lookup, "speedup_cpu", place));
  }
}

std::vector<std::optional<double>> rates(const Json& parent, const char* field, const std::string& place) {
  std::vector<std::optional<double>> values;
  if (!parent.is_object() || !parent.contains(field)) return values;
  if (!parent[field].is_array()) wrong(place, field, "a list");
  for (const Json& value : parent[field]) {
    if (!value.is_null() && !value.is_number()) wrong(place, field, "a list of numbers");
    values.push_back(value.is_null() ? std::nullopt : std::optional(value.get<double>()));
  }
  return values;
}

// CPU seconds of the phases, in the order in which they happen.
TimeSplit split_of(const std::string& name, const Json& run, const std::string& place) {
  TimeSplit split{.name = name};
  const Json& times = object_or_null(run, "time", place);
  for (const char* phase : {"prefill", "draft", "verify", "sample", "other"}) {
    const double seconds = number(object_or_null(times, phase, place), "cpu_s", place).value_or(0);
    if (seconds > 0) split.parts.push_back({phase, seconds});
  }
  return split;
}

CalibrationResult calibration_of(const Json& calibration, const std::string& place) {
  const Json& summary = object_or_null(calibration, "summary", place);
  CalibrationResult result{.ece = number(summary, "ece", place),
                           .auc = number(summary, "auc", place),
                           .brier = number(summary, "brier", place)};
  // The same bin of all positions becomes one dot.
  std::map<int64_t, CalibrationBin> bins;
  for (const Json& position : calibration.value("per_position", Json::array())) {
    for (const Json& bin : position.value("reliability", Json::array())) {
      CalibrationBin& sum = bins[static_cast<int64_t>(number(bin, "bin", place).value_or(0))];
      const double count = number(bin, "count", place).value_or(0);
      sum.predicted += count * number(bin, "prediction", place).value_or(0);
      sum.observed += count * number(bin, "label", place).value_or(0);
      sum.count += static_cast<int64_t>(count);
    }
  }
  for (auto& [index, bin] : bins) {
    if (bin.count == 0) continue;
    bin.predicted /= static_cast<double>(bin.count);
    bin.observed /= static_cast<double>(bin.count);
    result.bins.push_back(bin);
  }
  return result;
}

}  // namespace

void read_summary(const Json& summary, const std::string& place, ReportData& data) {
  const auto domains = summary.find("domains");
  if (!summary.is_object() || domains == summary.end() || !domains->is_object())
    wrong(place, "\"domains\"", "an object");
  for (const auto& [name, object] : domains->items()) {
    data.kinds.push_back(kind_of(name, object, place + ": domains/" + name));
  }
  // The kind that the draft was trained for comes first, the others stay in order.
  std::stable_partition(data.kinds.begin(), data.kinds.end(), [](const KindResult& kind) { return kind.trained; });
  if (const auto wall = number(summary, "wall_s", place)) {
    data.duration.insert(data.duration.begin(), {"From the model to here", format_duration(*wall)});
  }
}

void read_evaluation(const Json& result, const std::string& place, ReportData& data) {
  const auto tasks = result.find("tasks");
  if (!result.is_object() || tasks == result.end() || !tasks->is_object()) wrong(place, "\"tasks\"", "an object");
  const bool exact = result.value("dtype", "") == "f32";
  const bool alone = data.kinds.empty();
  const Json* shown = nullptr;
  for (const auto& [name, task] : tasks->items()) {
    auto kind =
        std::find_if(data.kinds.begin(), data.kinds.end(), [&](const KindResult& k) { return k.name == spaced(name); });
    if (kind == data.kinds.end()) {
      if (!alone) continue;  // the summary says what belongs to this run
      kind = data.kinds.insert(data.kinds.end(), KindResult{.name = spaced(name)});
    }
    add_task(task, exact, place + ": tasks/" + name, *kind);
    if (kind->trained) {
      shown = &task;
      data.measured_on = kind->name;
    }
  }
  if (shown == nullptr) {
    shown = &object_or_null(result, "total", place);
    data.measured_on = "all kinds together";
  }
  const Json& drafted = object_or_null(*shown, "speculative", place);
  if (!drafted.is_null()) {
    const Json& acceptance = object_or_null(drafted, "acceptance", place);
    data.positions = PositionAcceptance{rates(acceptance, "survival", place), rates(acceptance, "conditional", place)};
    data.times.push_back(split_of("With the draft", drafted, place));
  }
  data.times.push_back(split_of("Plain decoding", object_or_null(*shown, "plain", place), place));
  if (const Json& calibration = object_or_null(*shown, "calibration", place); !calibration.is_null()) {
    data.calibration = calibration_of(calibration, place);
  }
}

}  // namespace pacer::workflow
