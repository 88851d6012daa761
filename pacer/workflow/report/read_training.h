// What the report takes from a training run: metrics.jsonl, plan.json, environment.json, recipe.yaml.
#pragma once

#include <filesystem>

#include "pacer/workflow/report/report_data.h"

namespace pacer::workflow {

// Adds curves, settings, machine, duration and the recipe's text of the run in `folder`, as far as its files are there;
// the last line of metrics.jsonl may be cut off, because a run may still be writing it. Throws Error{format} with file
// and line for a file that is not what its name says.
void read_training(const std::filesystem::path& folder, ReportData& data);

}  // namespace pacer::workflow
