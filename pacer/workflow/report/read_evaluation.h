// What the report takes from measurements: the summary of a quickstart and the results of `pacer eval`.
#pragma once

#include <filesystem>

#include "pacer/base/json.h"
#include "pacer/workflow/report/report_data.h"

namespace pacer::workflow {

// {"wall_s", "threads", "domains": {NAME: {"trained", "prompts", "acceptance_length", ...}}} (docs/files.md).
// Throws Error{format} naming the file and the field that is missing or of another type.
void read_summary(const Json& summary, const std::string& place, ReportData& data);

}  // namespace pacer::workflow
