#include "pacer/data/generated_rows.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer::data {
namespace {

namespace fs = std::filesystem;

fs::path settings_file(fs::path path) { return path += ".meta.json"; }

void check_settings(const fs::path& path, const Json& settings) {
  const fs::path file = settings_file(path);
  if (!fs::exists(path)) {
    write_file(file, settings.dump(2) + "\n");
    return;
  }
  if (!fs::exists(file)) {
    throw Error(ErrorKind::usage,
                path.string() + ": exists, but not " + file.filename().string() + " that says how it was made",
                "choose another --out; this file was not begun by `pacer data generate`");
  }
  const Json before = read_json(file, 1 << 20);
  for (const auto& [key, value] : settings.items()) {
    if (before.contains(key) && before[key] == value) continue;
    throw Error(ErrorKind::usage,
                path.string() + ": begun with " + key + " = " +
                    (before.contains(key) ? before[key].dump() : "nothing") + ", now it is " + value.dump(),
                "rows of two kinds do not belong in one file: choose another --out, or go on with the old settings");
  }
}

}  // namespace

GeneratedRows::GeneratedRows(fs::path path, const Json& settings) : path_(std::move(path)) {
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path());
  check_settings(path_, settings);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw Error(ErrorKind::resources, path_.string() + ": cannot be written: " + std::strerror(errno),
                "does the folder exist, and may this user write there?");
  }
  try {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      throw Error(ErrorKind::usage, path_.string() + ": another process is writing to it", "wait for it, or stop it");
    }
    const std::string content = read_file(path_);
    const size_t last = content.rfind('\n');
    const size_t whole = last == std::string::npos ? 0 : last + 1;
    healed_bytes_ = static_cast<int64_t>(content.size() - whole);
    if (healed_bytes_ > 0 && ::ftruncate(descriptor_, static_cast<off_t>(whole)) != 0) {
      throw Error(ErrorKind::resources, path_.string() + ": cannot be cut: " + std::strerror(errno));
    }
    int64_t line = 1;
    for (size_t at = 0; at < whole; ++line) {
      const size_t end = content.find('\n', at);
      const std::string place = path_.string() + ":" + std::to_string(line);
      const Json row = parse_json(std::string_view(content).substr(at, end - at), place, ErrorKind::data);
      if (!row.is_object() || !row.contains("id") || !row["id"].is_string() || !row.contains("text") ||
          !row["text"].is_string()) {
        throw Error(ErrorKind::data, place + ": not a row with id and text", "this file was written by something else");
      }
      answers_.emplace(row["id"].get<std::string>(), row["text"].get<std::string>());
      at = end + 1;
    }
    if (::lseek(descriptor_, 0, SEEK_END) < 0) {
      throw Error(ErrorKind::resources, path_.string() + ": cannot be appended to: " + std::strerror(errno));
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

GeneratedRows::~GeneratedRows() { ::close(descriptor_); }

void GeneratedRows::append(const GeneratedRow& row) {
  if (contains(row.id)) throw Error(ErrorKind::bug, path_.string() + ": the id '" + row.id + "' is written already");
  OrderedJson value;
  value["id"] = row.id;
  value["messages"] = row.messages;
  value["prompt_ids"] = row.prompt_ids;
  value["output_ids"] = row.output_ids;
  value["finish_reason"] = row.finish_reason;
  value["text"] = row.text;
  // A token that ends in the middle of a code point decodes to U+FFFD; anything else that is not UTF-8 is a bug.
  const std::string line = value.dump() + "\n";
  write_all(descriptor_, std::as_bytes(std::span(line.data(), line.size())), path_);
  answers_.emplace(row.id, row.text);
}

void GeneratedRows::sync() {
  if (::fsync(descriptor_) != 0) {
    throw Error(ErrorKind::resources, path_.string() + ": cannot be written to disk: " + std::strerror(errno));
  }
}

}  // namespace pacer::data
