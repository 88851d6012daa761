// From a file and overrides to a recipe that has passed every check.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "pacer/train/recipe.h"

namespace pacer::train {

// overrides: "section.key=value", the value as YAML ("schedule.epochs=null" takes a value away). They win over the file
// and pass the same checks. Relative paths stay as they are written: they count from the working folder.
//
// Throws Error{usage} with place:line:column, what was found, what is allowed and the nearest key: for a key that does
// not exist or is missing, a value of another type or out of range, or values that contradict each other.
ResolvedRecipe read_recipe(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});
ResolvedRecipe parse_recipe(std::string_view yaml, const std::string& place,
                            const std::vector<std::string>& overrides = {});

// What one key forbids another. Called by the above; for recipes made in code. Origins are what messages name.
void check_recipe(const ResolvedRecipe& resolved);

// A recipe made in code: every value is of origin `origin` where it differs from the default.
ResolvedRecipe resolve(const Recipe& recipe, const std::string& origin);

}  // namespace pacer::train
