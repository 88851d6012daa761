#include "pacer/data/generated_rows.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/lock.h"

namespace pacer::data {
namespace {

namespace fs = std::filesystem;

fs::path settings_file(fs::path path) { return path += ".meta.json"; }

void check_settings(const fs::path& path, const Json& settings) {
  const fs::path file = settings_file(path);
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

// Whether the name still stands for the open file: finish() puts another one in its place.
bool is_still_there(int descriptor, const fs::path& path) {
  struct stat open_file{}, named{};
  return ::fstat(descriptor, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

}  // namespace

GeneratedRows::GeneratedRows(fs::path path, const Json& settings) : path_(std::move(path)) {
  std::error_code code;  // opening the file says what is wrong with its folder
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), code);
  open_and_lock();
  try {
    // Settings after the lock: two processes that begin at once must not both write theirs.
    if (::lseek(descriptor_, 0, SEEK_END) > 0) {
      check_settings(path_, settings);
    } else {
      write_file(settings_file(path_), settings.dump(2) + "\n");
    }
    remove_leftovers(path_);
    remove_leftovers(settings_file(path_));
    read_rows();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

GeneratedRows::~GeneratedRows() { ::close(descriptor_); }

void GeneratedRows::open_and_lock() {
  while (true) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      throw Error(ErrorKind::resources, path_.string() + ": cannot be written: " + std::strerror(errno),
                  "does the folder exist, and may this user write there?");
    }
    try {
      if (!try_lock(descriptor_, path_)) {
        throw Error(ErrorKind::usage, path_.string() + ": another process is writing to it", "wait for it, or stop it");
      }
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
    if (is_still_there(descriptor_, path_)) return;
    ::close(descriptor_);
  }
}

void GeneratedRows::read_rows() {
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
    answers_.emplace(row["id"].get<std::string>(),
                     Answer{row["text"].get<std::string>(), static_cast<int64_t>(at), static_cast<int64_t>(end) + 1});
    at = end + 1;
  }
  end_ = static_cast<int64_t>(whole);
}

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
  const int64_t begin = end_;
  end_ += static_cast<int64_t>(line.size());
  answers_.emplace(row.id, Answer{row.text, begin, end_});
}

void GeneratedRows::sync() {
  if (::fsync(descriptor_) != 0) {
    throw Error(ErrorKind::resources, path_.string() + ": cannot be written to disk: " + std::strerror(errno));
  }
}

void GeneratedRows::finish(const std::vector<std::string>& ids) {
  sync();
  std::vector<std::pair<int64_t, int64_t>> lines;  // as they shall stand
  std::set<int64_t> named;
  for (const std::string& id : ids) {
    const auto found = answers_.find(id);
    if (found == answers_.end() || !named.insert(found->second.begin).second) continue;
    lines.emplace_back(found->second.begin, found->second.end);
  }
  const auto others = static_cast<std::ptrdiff_t>(lines.size());
  for (const auto& [id, answer] : answers_) {
    if (!named.contains(answer.begin)) lines.emplace_back(answer.begin, answer.end);
  }
  std::sort(lines.begin() + others, lines.end());
  if (std::is_sorted(lines.begin(), lines.end())) return;
  const auto old = MappedFile::open(path_);
  write_file(path_, [&](int descriptor) {
    for (const auto& [begin, end] : lines) {
      write_all(descriptor, old->bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), path_);
    }
  });
}

}  // namespace pacer::data
