// The main job from nothing to a report: model, data, draft, measurement.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/workflow/plan.h"

namespace pacer::workflow {

struct QuickstartOptions {
  std::filesystem::path folder = "quickstart";
  std::optional<std::filesystem::path> model;  // Hugging Face folder or .gguf; unset: SmolLM2-135M-Instruct, fetched
  // Of a model of one's own whose tokenizer uses every id: a special token that no answer contains.
  std::optional<int64_t> mask_token_id;
  QuickstartWishes wishes;
  int threads = 0;  // 0: as the machine has cores
  std::string device = "auto";
  uint64_t seed = 1;
  std::function<bool()> stop_requested;
  std::vector<std::string> command;  // for the records
};

// Runs the stages that `folder` does not hold yet: model, speed, plan, generate, train, evaluate, report. Writes
// folder/summary.json and folder/report.html and returns the summary:
//   {"wall_s", "threads", "domains": {NAME: {"trained", "prompts", "acceptance_length", "speedup_cpu", "speedup_wall",
//    "identical_f32", "identical_bf16", "paced": {"acceptance_length", "speedup_cpu", "speedup_wall",
//    "identical_bf16"}, "lookup": {"acceptance_length", "speedup_cpu"}}}}; null: not measured on this kind
// threads: of the evaluation, 1 or all, whichever decodes plainly faster; data and training use all.
// null when it was stopped on request; the same call goes on.
Json run_quickstart(const QuickstartOptions& options);

// The summary as one table for a terminal.
std::string quickstart_table(const Json& summary);

}  // namespace pacer::workflow
