// A made-up run with every part that a report can show.
#pragma once

#include <filesystem>

#include "pacer/base/json.h"
#include "pacer/workflow/report/report_data.h"

namespace pacer::workflow {

ReportData sample_report();

// metrics.jsonl, plan.json, environment.json and recipe.yaml as the trainer writes them.
void write_sample_run(const std::filesystem::path& folder);

Json sample_summary();
Json sample_evaluation();  // of the same two kinds, in bf16

}  // namespace pacer::workflow
