// The style sheet of the report: one text, no other file.
#pragma once

#include <string_view>

namespace pacer::workflow {

std::string_view report_style();

}  // namespace pacer::workflow
