#include "pacer/workflow/report/read_evaluation.h"

#include <algorithm>

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

KindResult kind_of(const std::string& name, const Json& object, const std::string& place) {
  if (!object.is_object()) wrong(place, name, "an object");
  KindResult kind;
  kind.name = name;
  std::replace(kind.name.begin(), kind.name.end(), '_', ' ');
  kind.trained = truth(object, "trained", place).value_or(false);
  kind.prompts = static_cast<int64_t>(number(object, "prompts", place).value_or(0));
  kind.acceptance_length = number(object, "acceptance_length", place);
  kind.speedup_cpu = number(object, "speedup_cpu", place);
  kind.speedup_wall = number(object, "speedup_wall", place);
  kind.identical_f32 = truth(object, "identical_f32", place);
  kind.identical_bf16 = truth(object, "identical_bf16", place);
  if (const auto lookup = object.find("lookup"); lookup != object.end() && lookup->is_object()) {
    kind.lookup_acceptance_length = number(*lookup, "acceptance_length", place + ": lookup");
    kind.lookup_speedup_cpu = number(*lookup, "speedup_cpu", place + ": lookup");
  }
  return kind;
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

}  // namespace pacer::workflow
