#include "pacer/workflow/report/read_training.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/base/numbers.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;

using Curves = std::map<std::string, Curve>;  // "train/loss", "validation/accept/1"

void add_points(Curves& curves, const std::string& name, double step, const Json& value) {
  if (value.is_number()) {
    Curve& curve = curves[name];
    // A run that was continued may have written a step twice; the later line is the one that counts.
    while (!curve.x.empty() && curve.x.back() >= step) curve.x.pop_back(), curve.y.pop_back();
    curve.x.push_back(step);
    curve.y.push_back(value.get<double>());
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) add_points(curves, name + "/" + std::to_string(i + 1), step, value[i]);
  }
}

struct Metrics {
  Curves curves;
  Json end;  // the record of the end, null while the run goes on
};

Metrics read_metrics(const fs::path& file) {
  Metrics metrics;
  const std::string content = read_file(file);
  size_t number = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = content.find('\n', begin);
    if (end == std::string::npos) break;  // still being written
    const std::string place = file.string() + ":" + std::to_string(++number);
    const Json record = parse_json(std::string_view(content).substr(begin, end - begin), place);
    begin = end + 1;
    const auto kind = record.is_object() ? record.find("kind") : record.end();
    if (!record.is_object() || kind == record.end() || !kind->is_string()) {
      throw Error(ErrorKind::format, place + ": not an object with a \"kind\"",
                  "is this the metrics.jsonl of a Pacer run?");
    }
    if (*kind == "end") metrics.end = record;
    if ((*kind != "train" && *kind != "validation") || !record.contains("step")) continue;
    const double step = record["step"].get<double>();
    for (const auto& [name, value] : record.items()) {
      if (name != "step") add_points(metrics.curves, kind->get<std::string>() + "/" + name, step, value);
    }
  }
  return metrics;
}

// The curve of this name under the name that the chart shows; nothing when there is none.
void take(const Curves& curves, const std::string& name, const std::string& shown, CurveChart& chart) {
  if (const auto found = curves.find(name); found != curves.end()) {
    chart.curves.push_back({shown, found->second.x, found->second.y});
  }
}

std::vector<CurveChart> charts_of(const Curves& curves) {
  CurveChart loss{.title = "Loss", .smooth = true};
  take(curves, "train/loss", "training", loss);
  take(curves, "validation/loss", "validation", loss);

  CurveChart tau{.title = "Expected tokens per pass",
                 .note = "tau: 1 plus the expected number of accepted drafts",
                 .smooth = true};
  take(curves, "train/tau", "training", tau);
  take(curves, "validation/tau", "validation", tau);

  // Validation, when there was any, says more than training about texts that are new.
  const std::string source = curves.contains("validation/accept/1") ? "validation" : "train";
  CurveChart accept{.title = "Acceptance by position",
                    .note = source == "train" ? "on training rows" : "on validation rows",
                    .smooth = source == "train",
                    .low = 0.0};
  for (int k = 1; k <= 5; ++k) {
    take(curves, source + "/accept/" + std::to_string(k), "draft " + std::to_string(k), accept);
  }

  CurveChart rate{.title = "Learning rate", .low = 0.0};
  take(curves, "train/learning_rate", "learning rate", rate);
  CurveChart norm{.title = "Gradient norm", .note = "before clipping", .smooth = true, .low = 0.0};
  take(curves, "train/gradient_norm", "norm", norm);
  CurveChart parts{.title = "Parts of the loss", .note = "on training rows, before their weights", .smooth = true};
  take(curves, "train/ce", "cross-entropy", parts);
  take(curves, "train/l1", "L1 distance", parts);
  take(curves, "train/confidence", "confidence", parts);

  std::vector<CurveChart> charts;
  for (CurveChart* chart : {&loss, &tau, &accept, &parts, &rate, &norm}) {
    if (!chart->curves.empty()) charts.push_back(std::move(*chart));
  }
  return charts;
}

std::string shown(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return format_count(value.get<int64_t>());
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const Json& item : value) list += (list.empty() ? "" : ", ") + shown(item);
  return list;
}

void read_settings(const fs::path& file, ReportData& data) {
  const Json plan = read_json(file);
  const Json recipe = plan.value("recipe", Json::object());
  constexpr std::array<std::pair<const char*, const char*>, 13> kShown = {{
      {"model.target", "Target"},
      {"model.dtype", "Target computes in"},
      {"draft.method", "Method"},
      {"draft.layers", "Layers"},
      {"draft.block_size", "Block size"},
      {"draft.taps", "Taps"},
      {"draft.markov", "Markov head"},
      {"draft.vocabulary", "Draft vocabulary"},
      {"draft.warm_start", "Warm start"},
      {"optimizer.learning_rate", "Learning rate"},
      {"data.sequences", "Rows a step"},
      {"data.anchors", "Anchors a row"},
      {"seed", "Seed"},
  }};
  for (const auto& [key, name] : kShown) {
    if (!recipe.contains(key) || recipe[key].is_null()) continue;
    std::string value = shown(recipe[key]);
    if (std::string_view(key) == "draft.vocabulary" && recipe[key] == 0) value = "all of the target's";
    data.settings.push_back({name, value});
  }
  if (plan.contains("steps")) data.settings.push_back({"Steps", shown(plan["steps"])});
  if (plan.contains("how")) data.settings.push_back({"Planned as", shown(plan["how"])});
  if (plan.contains("threads")) data.settings.push_back({"Threads", shown(plan["threads"])});

  if (recipe.contains("draft.method") && recipe.contains("model.target")) {
    std::string method = recipe["draft.method"].get<std::string>();
    if (method == "dspark") method = "DSpark";
    if (method == "dflash") method = "DFlash";
    fs::path target = recipe["model.target"].get<std::string>();
    if (target.filename().empty()) target = target.parent_path();
    data.title = method + " draft for " + target.filename().string();
  }
}

// "memory_bytes" -> "Memory"
Fact fact_of(std::string name, const Json& value) {
  std::string text = shown(value);
  if (name.ends_with("_bytes") && value.is_number_unsigned()) {
    name.resize(name.size() - 6);
    text = format_bytes(value.get<uint64_t>());
  }
  std::replace(name.begin(), name.end(), '_', ' ');
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return {name, text};
}

void read_environment(const fs::path& file, ReportData& data) {
  const OrderedJson environment = parse_ordered_json(read_file(file), file.string());
  for (const auto& [name, value] : environment.items()) {
    if (value.is_object()) {
      for (const auto& [inner, inner_value] : value.items()) {
        if (!inner_value.is_object()) data.machine.push_back(fact_of(inner, inner_value));
      }
    } else if (!value.is_null() && name != "schema") {
      data.machine.push_back(fact_of(name, value));
    }
  }
}

}  // namespace

void read_training(const fs::path& folder, ReportData& data) {
  if (fs::exists(folder / "plan.json")) read_settings(folder / "plan.json", data);
  if (fs::exists(folder / "metrics.jsonl")) {
    const Metrics metrics = read_metrics(folder / "metrics.jsonl");
    data.training = charts_of(metrics.curves);
    if (metrics.end.is_object() && metrics.end.value("wall_s", Json()).is_number()) {
      data.duration.push_back({"Training took", format_duration(metrics.end["wall_s"].get<double>())});
    }
  }
  if (fs::exists(folder / "environment.json")) read_environment(folder / "environment.json", data);
  if (fs::exists(folder / "recipe.yaml")) data.recipe = read_file(folder / "recipe.yaml");
}

}  // namespace pacer::workflow
