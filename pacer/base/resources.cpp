#include "pacer/base/resources.h"

#include <cstdlib>
#include <vector>

#include "pacer/base/error.h"

namespace pacer {

std::filesystem::path resource(const std::string& name) {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  if (const char* given = std::getenv("PACER_RESOURCES"); given != nullptr && *given != '\0')
    places.emplace_back(given);
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  if (!code) places.push_back(program.parent_path().parent_path() / "share" / "pacer");
  places.emplace_back(PACER_SOURCE_DIR);

  std::string searched;
  for (const fs::path& place : places) {
    if (fs::exists(place / name, code)) return place / name;
    searched += (searched.empty() ? "" : ", ") + place.string();
  }
  throw Error(ErrorKind::usage, "'" + name + "' of Pacer's own files is not in any of: " + searched,
              "set PACER_RESOURCES to Pacer's source folder or to PREFIX/share/pacer of an installation");
}

}  // namespace pacer
