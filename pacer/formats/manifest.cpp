#include "pacer/formats/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "manifest.json";
constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

std::string hex(uint32_t value) {
  std::array<char, 8> digits;
  for (size_t i = 0; i < 8; ++i) digits[i] = "0123456789abcdef"[(value >> (28 - 4 * i)) & 15];
  return {digits.begin(), digits.end()};
}

uint32_t checksum_of(const fs::path& path, uint64_t bytes) {
  return bytes == 0 ? crc32c({}) : crc32c(MappedFile::open(path)->bytes());
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& what) {
  throw Error(ErrorKind::format, (folder / kName).string() + ": " + what,
              "it was not written by this program, or damaged");
}

ManifestFile parse_file(const fs::path& folder, const Json& entry) {
  const auto has = [&](const char* key, bool good) {
    if (!good) refuse(folder, std::string("an entry of files without a proper '") + key + "'");
  };
  if (!entry.is_object()) refuse(folder, "an entry of files that is no object");
  has("name", entry.contains("name") && entry["name"].is_string());
  has("bytes", entry.contains("bytes") && entry["bytes"].is_number_unsigned());
  has("crc32c", entry.contains("crc32c") && entry["crc32c"].is_string());
  ManifestFile file{entry["name"].get<std::string>(), entry["bytes"].get<uint64_t>(), 0};
  const std::string& digits = entry["crc32c"].get_ref<const std::string&>();
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), file.crc32c, 16);
  has("crc32c", digits.size() == 8 && code == std::errc() && end == digits.data() + 8);
  return file;
}

Manifest parse(const fs::path& folder, const Json& json, const std::string& schema, int64_t newest_version) {
  if (!json.is_object() || !json.contains("schema") || !json["schema"].is_string() || !json.contains("version") ||
      !json["version"].is_number_integer()) {
    refuse(folder, "schema and version are missing");
  }
  Manifest manifest;
  manifest.schema = json["schema"].get<std::string>();
  manifest.version = json["version"].get<int64_t>();
  if (manifest.schema != schema) {
    throw Error(ErrorKind::format,
                folder.string() + ": this is a '" + manifest.schema + "', a '" + schema + "' is needed",
                "give another folder");
  }
  if (manifest.version < 1 || manifest.version > newest_version) {
    throw Error(ErrorKind::format,
                folder.string() + ": " + schema + " version " + std::to_string(manifest.version) + ", up to " +
                    std::to_string(newest_version) + " is read",
                "use the version of pacer that wrote it, or a newer one");
  }
  if (!json.contains("files") || !json["files"].is_array()) refuse(folder, "the list files is missing");
  for (const Json& entry : json["files"]) manifest.files.push_back(parse_file(folder, entry));
  if (json.contains("fingerprints")) {
    if (!json["fingerprints"].is_object()) refuse(folder, "fingerprints is no object");
    for (const auto& [name, value] : json["fingerprints"].items()) {
      if (!value.is_string()) refuse(folder, "the fingerprint '" + name + "' is no string");
      manifest.fingerprints.emplace(name, value.get<std::string>());
    }
  }
  if (json.contains("details")) manifest.details = json["details"];
  return manifest;
}

void check_files(const fs::path& folder, const Manifest& manifest, ManifestCheck check) {
  for (const ManifestFile& file : manifest.files) {
    const fs::path path = inside(folder, file.name);
    const auto damaged = [&](const std::string& what) {
      throw Error(ErrorKind::data, path.string() + ": " + what,
                  "the folder is incomplete or was changed; make it again or fetch it again");
    };
    std::error_code code;
    const uint64_t bytes = fs::file_size(path, code);
    if (code) damaged("named in " + std::string(kName) + " but not there");
    if (bytes != file.bytes) damaged(std::to_string(bytes) + " bytes instead of " + std::to_string(file.bytes));
    if (check != ManifestCheck::checksums) continue;
    const uint32_t found = checksum_of(path, bytes);
    if (found != file.crc32c) damaged("checksum " + hex(found) + " instead of " + hex(file.crc32c));
  }
}

}  // namespace

void write_manifest(const fs::path& folder, Manifest manifest) {
  manifest.files.clear();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    const std::string name = entry.path().lexically_relative(folder).generic_string();
    if (name == kName) continue;
    if (!entry.is_regular_file()) throw Error(ErrorKind::bug, entry.path().string() + ": neither file nor folder");
    const uint64_t bytes = entry.file_size();
    manifest.files.push_back({name, bytes, checksum_of(entry.path(), bytes)});
  }
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const ManifestFile& a, const ManifestFile& b) { return a.name < b.name; });
  OrderedJson json = {{"schema", manifest.schema}, {"version", manifest.version}, {"files", OrderedJson::array()}};
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", hex(file.crc32c)}});
  }
  json["fingerprints"] = manifest.fingerprints;
  json["details"] = manifest.details;
  write_file(folder / kName, json.dump(2) + "\n");
}

Manifest read_manifest(const fs::path& folder, const std::string& schema, int64_t newest_version, ManifestCheck check) {
  const fs::path path = folder / kName;
  if (!fs::exists(path)) {
    throw Error(ErrorKind::data, folder.string() + ": no " + kName,
                "it is written last, so the folder is not complete, or it is not a folder of this program");
  }
  Manifest manifest = parse(folder, read_json(path, kMaxBytes), schema, newest_version);
  check_files(folder, manifest, check);
  return manifest;
}

void require_fingerprint(const Manifest& manifest, const std::string& place, const std::string& name,
                         const std::string& expected, const std::string& what, const std::string& hint) {
  const auto found = manifest.fingerprints.find(name);
  if (found != manifest.fingerprints.end() && found->second == expected) return;
  throw Error(ErrorKind::data,
              place + ": made with other contents of " + what + " (" +
                  (found == manifest.fingerprints.end() ? "none recorded" : found->second) + ", now " + expected + ")",
              hint);
}

std::string fingerprint(std::string_view content) {
  return "crc32c:" + hex(crc32c(std::as_bytes(std::span(content.data(), content.size())))) + ":" +
         std::to_string(content.size());
}

std::string fingerprint_file(const fs::path& path) {
  const auto file = MappedFile::open(path);
  return "crc32c:" + hex(crc32c(file->bytes())) + ":" + std::to_string(file->bytes().size());
}

}  // namespace pacer::formats
