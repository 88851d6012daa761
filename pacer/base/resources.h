// Files that come with the program: recipes, tasks, scripts.
#pragma once

#include <filesystem>
#include <string>

namespace pacer {

// The path of a file or folder of the source tree by its name from the root, such as "tools/fetch.sh" or "recipes".
// Looked for below $PACER_RESOURCES, then below share/pacer of the prefix that the running program is installed in,
// then in the tree that it was built from. Throws Error{usage} that lists these places when it is in none of them.
std::filesystem::path resource(const std::string& name);

}  // namespace pacer
