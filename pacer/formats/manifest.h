// manifest.json: what a folder holds, what it was made from, and that it is whole. Written last, checked first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::formats {

struct ManifestFile {
  std::string name;  // relative to the folder, with '/'
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct Manifest {
  std::string schema;  // "pacer.checkpoint"
  int64_t version = 1;
  std::vector<ManifestFile> files;                  // sorted by name
  std::map<std::string, std::string> fingerprints;  // what it was made from: "tokenizer" -> fingerprint(...)
  Json details = Json::object();                    // counts and settings, as the schema defines them
};

// Describes every regular file below `folder` but manifest.json itself, then writes manifest.json, atomically.
// `manifest.files` is replaced. Inside a FolderTransaction this is the last call before commit().
// Throws Error{resources} when something cannot be read or written, Error{bug} for what is neither file nor folder.
void write_manifest(const std::filesystem::path& folder, Manifest manifest);

enum class ManifestCheck {
  sizes,     // presence and size of every file: catches what was cut off or left out, costs nothing
  checksums  // also the content, about a second per gigabyte
};

// Reads manifest.json and checks the files it names against it. Throws Error{data}: missing or damaged files, with
// their names; Error{format}: another schema, a newer version, names that leave the folder, an incomplete manifest.
Manifest read_manifest(const std::filesystem::path& folder, const std::string& schema, int64_t newest_version,
                       ManifestCheck check = ManifestCheck::sizes);

// Throws Error{data} when the fingerprint `name` is missing or another one; `what` says in words what must not change
// ("the tokenizer"), hint what to do about it.
void require_fingerprint(const Manifest& manifest, const std::string& place, const std::string& name,
                         const std::string& expected, const std::string& what, const std::string& hint);

// "crc32c:1a2b3c4d:1024": checksum and length of content. Meant to notice accidents, not forgery.
std::string fingerprint(std::string_view content);
std::string fingerprint_file(const std::filesystem::path& path);

}  // namespace pacer::formats
