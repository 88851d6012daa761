#include "tests/workflow/sample_report.h"

#include <algorithm>
#include <cmath>

#include "pacer/base/files.h"

namespace pacer::workflow {
namespace {

KindResult kind(const std::string& name, double length, double speedup, double lookup) {
  KindResult result{.name = name, .prompts = 20};
  result.acceptance_length = length;
  result.speedup_cpu = speedup;
  result.speedup_wall = speedup - 0.04;
  result.speedup_low = speedup - 0.2;
  result.speedup_high = speedup + 0.25;
  result.plain_tokens_per_s = 92.1;
  result.speculative_tokens_per_s = 92.1 * speedup;
  result.identical_f32 = true;
  result.identical_bf16 = name != "code";
  result.lookup_acceptance_length = lookup + 0.2;
  result.lookup_speedup_cpu = lookup;
  return result;
}

}  // namespace

ReportData sample_report() {
  ReportData data{.title = "DSpark draft for a small model", .subtitle = "runs/first"};
  Curve loss{.name = "training"}, validation{.name = "validation"}, tau{.name = "validation"}, rate{.name = "rate"};
  std::vector<Curve> accept(5);
  for (size_t k = 0; k < accept.size(); ++k) accept[k].name = "draft " + std::to_string(k + 1);
  for (int step = 1; step <= 1420; ++step) {
    const auto add = [&](Curve& curve, double y) { curve.x.push_back(step), curve.y.push_back(y); };
    add(loss, 0.4 + 1.6 * std::exp(-step / 300.0) + 0.2 * std::sin(step * 12.99) * std::cos(step * 3.1));
    add(rate, step < 60 ? 1e-5 * step : 3e-4 * (1 + std::cos(3.14159 * (step - 60) / 1360.0)));
    if (step % 142 != 0) continue;
    add(validation, 0.45 + 1.5 * std::exp(-step / 320.0));
    add(tau, 2.8 - 1.8 * std::exp(-step / 400.0));
    for (size_t k = 0; k < accept.size(); ++k) {
      add(accept[k], (0.75 - 0.05 * static_cast<double>(k)) * (1 - std::exp(-step / 300.0)));
    }
  }
  data.training = {{.title = "Loss", .curves = {loss, validation}, .smooth = true},
                   {.title = "Expected tokens per pass", .curves = {tau}},
                   {.title = "Acceptance on validation", .curves = accept, .low = 0.0},
                   {.title = "Learning rate", .curves = {rate}, .low = 0.0}};
  data.kinds = {kind("word problems", 2.79, 1.88, 1.12), kind("chat", 1.72, 1.18, 1.02), kind("code", 1.90, 1.30, 1.21),
                kind("questions", 1.61, 1.09, 0.99)};
  data.kinds[0].trained = true;
  data.positions = PositionAcceptance{{0.78, 0.61, 0.46, 0.33, 0.25}, {0.78, 0.78, 0.755, 0.72, 0.74}};
  data.times = {
      {"With the draft", {{"prefill", 0.8}, {"draft", 2.1}, {"verify", 6.4}, {"sample", 0.5}, {"other", 0.2}}},
      {"Plain decoding", {{"prefill", 0.8}, {"verify", 16.4}, {"sample", 0.9}, {"other", 0.3}}}};
  data.calibration = CalibrationResult{.ece = 0.034, .auc = 0.871, .brier = 0.142};
  for (int i = 0; i < 20; ++i) {
    const double predicted = (i + 0.5) / 20;
    data.calibration->bins.push_back(
        {predicted, std::clamp(predicted + 0.05 * std::sin(1.3 * i), 0.0, 1.0), 50 + 20 * i});
  }
  data.duration = {{"Training took", "4 min 52 s"}};
  data.settings = {{"Method", "DSpark"}, {"draft.layers", "2"}};
  data.machine = {{"Processor", "AMD EPYC 9B45"}, {"Cores", "2"}};
  data.recipe = "draft:\n  layers: 2\n";
  return data;
}

void write_sample_run(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::string lines = R"({"kind":"start","step":0})"
                      "\n";
  for (int step = 1; step <= 3; ++step) {
    const Json train = {{"kind", "train"},       {"step", 10 * step},    {"loss", 2.5 - 0.5 * step},
                        {"tau", 1 + 0.2 * step}, {"accept", {0.5, 0.4}}, {"learning_rate", 1e-4}};
    lines += train.dump() + "\n";
  }
  lines += R"({"kind":"validation","step":30,"loss":1.1,"tau":1.7,"accept":[0.6,0.5]})"
           "\n";
  lines += R"({"kind":"end","step":30,"wall_s":61})"
           "\n";
  write_file(folder / "metrics.jsonl", lines);
  const Json plan = {
      {"steps", 30},
      {"threads", 2},
      {"how", "30 steps"},
      {"recipe", {{"draft.method", "dspark"}, {"model.target", "work/model/"}, {"draft.taps", {1, 14, 27}}}}};
  write_file(folder / "plan.json", plan.dump());
  write_file(folder / "environment.json", R"({"machine": {"processor": "a processor", "memory_bytes": 16000000000}})");
  write_file(folder / "recipe.yaml", "draft:\n  block_size: 5\n");
}

Json sample_summary() {
  const auto domain = [](bool trained, double length, double speedup) {
    return Json{{"trained", trained},          {"prompts", 20},
                {"acceptance_length", length}, {"speedup_cpu", speedup},
                {"speedup_wall", speedup},     {"identical_f32", true},
                {"identical_bf16", nullptr},   {"lookup", {{"acceptance_length", 1.3}, {"speedup_cpu", 1.1}}}};
  };
  return {{"wall_s", 640.0},
          {"threads", 2},
          {"domains", {{"chat", domain(false, 1.7, 1.2)}, {"word_problems", domain(true, 2.8, 1.9)}}}};
}

Json sample_evaluation() {
  const Json chat = Json::parse(R"({"prompts": 20, "plain": {"tokens_per_s": 60.0, "time": {"verify": {"cpu_s": 9.0}}},
    "speculative": {"acceptance_length": 1.7, "speedup_cpu": 1.2, "speedup_wall": 1.2, "tokens_per_s": 70.0,
      "identical": true, "speedup_cpu_spread": {"low": 1.1, "high": 1.3},
      "acceptance": {"survival": [0.5, 0.25, null], "conditional": [0.5, 0.5, null]},
      "time": {"draft": {"cpu_s": 2.0}, "verify": {"cpu_s": 5.0}}},
    "lookup": {"acceptance_length": 1.1, "speedup_cpu": 1.0}, "calibration": null})");
  Json problems = chat;
  problems["speculative"].update(Json::parse(R"({"acceptance_length": 2.8, "speedup_cpu": 1.5,
    "speedup_cpu_spread": {"low": 1.4, "high": 1.6}, "acceptance": {"survival": [0.8, 0.6], "conditional": [0.8, 0.75]},
    "time": {"prefill": {"cpu_s": 0.0}, "draft": {"cpu_s": 2.0}, "verify": {"cpu_s": 6.0}}})"));
  problems["calibration"] = Json::parse(R"({"summary": {"ece": 0.05, "auc": 0.9, "brier": 0.1}, "per_position": [
    {"reliability": [{"bin": 3, "prediction": 0.16, "label": 0.2, "count": 10}]},
    {"reliability": [{"bin": 3, "prediction": 0.18, "label": 0.1, "count": 30}]}]})");
  return {{"schema", "pacer.evaluation/1"},
          {"dtype", "bf16"},
          {"tasks", {{"chat", chat}, {"word_problems", problems}}},
          {"total", chat}};
}

}  // namespace pacer::workflow
