// Which target a draft was trained for.
#pragma once

#include <filesystem>

namespace pacer::train {

// Warns when the checkpoint was made with other weights than `target` (a folder or a .gguf file) has, naming both
// fingerprints. Text stays right with such a draft, it is only accepted less often; sizes that differ are an error
// where the draft is loaded. A draft without a record of its target is taken as it is, a damaged checkpoint is refused
// with Error{data}.
void warn_of_another_target(const std::filesystem::path& draft, const std::filesystem::path& target);

}  // namespace pacer::train
