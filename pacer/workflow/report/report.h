// One self-contained HTML page about a run: no script, no font, no image from anywhere else.
#pragma once

#include <filesystem>
#include <string>

#include "pacer/workflow/report/report_data.h"

namespace pacer::workflow {

// The whole page. Parts that the data lack are named on the page, with the command that makes them.
std::string render_report(const ReportData& data);

// Reads what `folder` holds: a run folder of the trainer, an evaluation's result, the folder of a quickstart, or a
// folder that contains these. Throws Error{data} when there is nothing to report, Error{format} for a file that is not
// what its name says.
ReportData read_report(const std::filesystem::path& folder);

}  // namespace pacer::workflow
