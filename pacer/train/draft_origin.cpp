#include "pacer/train/draft_origin.h"

#include "pacer/base/logging.h"
#include "pacer/formats/manifest.h"
#include "pacer/train/checkpoint_schema.h"
#include "pacer/train/draft_setup.h"

namespace pacer::train {

void warn_of_another_target(const std::filesystem::path& draft, const std::filesystem::path& target) {
  if (!std::filesystem::exists(draft / "manifest.json")) return;
  const formats::Manifest manifest = formats::read_manifest(draft, kCheckpointSchema, kCheckpointVersion);
  const auto trained_for = manifest.fingerprints.find("target");
  if (trained_for == manifest.fingerprints.end()) return;
  const std::string now = target_fingerprint(target);
  if (trained_for->second == now) return;
  log_warning(draft.string() + ": trained for a target with the fingerprint " + trained_for->second + ", " +
              target.string() + " has " + now +
              "; the text is right all the same, but with another model or revision few tokens are accepted");
}

}  // namespace pacer::train
