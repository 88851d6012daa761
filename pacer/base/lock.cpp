#include "pacer/base/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer {

namespace fs = std::filesystem;

namespace {

template <typename Matches>
void remove_files(const fs::path& folder, const Matches& matches) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    if (matches(entry->path().filename().string()) && entry->is_regular_file(code)) found.push_back(entry->path());
  }
  for (const fs::path& file : found) fs::remove(file, code);  // one that stays is in nobody's way
}

}  // namespace

bool try_lock(int descriptor, const std::filesystem::path& place) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    throw Error(ErrorKind::resources, place.string() + ": cannot be locked: " + std::strerror(errno),
                "choose a folder on a file system with locks");
  }
  return true;
}

FileLock::FileLock(const std::filesystem::path& file, const std::string& busy, const std::string& hint)
    : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) {
    throw Error(ErrorKind::resources, file.string() + ": cannot be opened: " + std::strerror(errno),
                "may this user write there?");
  }
  try {
    if (!try_lock(descriptor_, file)) {
      std::string owner = read_file(file, 64);
      while (!owner.empty() && owner.back() == '\n') owner.pop_back();
      throw Error(ErrorKind::usage, busy + (owner.empty() ? "" : " (process " + owner + ")"), hint);
    }
    const std::string owner = std::to_string(::getpid()) + "\n";
    if (::ftruncate(descriptor_, 0) != 0) {
      throw Error(ErrorKind::resources, file.string() + ": cannot be written: " + std::strerror(errno));
    }
    write_all(descriptor_, std::as_bytes(std::span(owner)), file);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

void remove_leftovers(const fs::path& path) {
  remove_files(
      path.has_parent_path() ? path.parent_path() : fs::path("."),
      [prefix = path.filename().string() + ".tmp-"](const std::string& name) { return name.starts_with(prefix); });
}

void remove_all_leftovers(const fs::path& folder) {
  remove_files(folder, [](const std::string& name) {
    const size_t at = name.rfind(".tmp-"), digits = at + 5;  // NAME.tmp-PROCESS
    return at != std::string::npos && at > 0 && digits < name.size() &&
           name.find_first_not_of("0123456789", digits) == std::string::npos;
  });
}

FileLock::~FileLock() { ::close(descriptor_); }  // closing unlocks

}  // namespace pacer
