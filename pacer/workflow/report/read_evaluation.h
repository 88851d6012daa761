// What the report takes from measurements: the summary of a quickstart and the results of `pacer eval`.
#pragma once

#include <filesystem>

#include "pacer/base/json.h"
#include "pacer/workflow/report/report_data.h"

namespace pacer::workflow {

// summary.json: {"wall_s", "threads", "domains": {NAME: {"trained", "prompts", "acceptance_length", ...}}}
// (docs/files.md). Throws Error{format} naming the file and the field that is missing or of another type.
void read_summary(const Json& summary, const std::string& place, ReportData& data);

// A result of `pacer eval`, schema "pacer.evaluation/1" (docs/evaluation.md). Kinds that a summary gave already keep
// what it says and gain what only the result holds; without a summary the tasks become the kinds. Acceptance by
// position, the split of the time and calibration are those of the trained kind, of all tasks together where none is
// marked. Throws as read_summary.
void read_evaluation(const Json& result, const std::string& place, ReportData& data);

}  // namespace pacer::workflow
