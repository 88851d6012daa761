#include "pacer/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/huge_pages.h"

namespace pacer {
namespace {

namespace fs = std::filesystem;

std::string system_message() { return std::strerror(errno); }

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

fs::path temporary_name(const fs::path& path) {
  fs::path name = path;
  name += ".tmp-" + std::to_string(::getpid());
  return name;
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) {
    throw Error(ErrorKind::resources, to.string() + ": cannot be written: " + code.message(),
                "is there something else of that name, and may this user write there?");
  }
}

std::array<std::array<uint32_t, 256>, 8> make_crc_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0x82F63B78u : 0u);
    tables[0][i] = value;
  }
  for (size_t t = 1; t < 8; ++t) {
    for (size_t i = 0; i < 256; ++i) tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFF];
  }
  return tables;
}

}  // namespace

std::string read_file(const fs::path& path, uint64_t max_bytes) {
  constexpr size_t kRoomBehind = 64;  // for parsers that read whole vectors: with less they copy the text first
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    throw Error(ErrorKind::data, path.string() + ": cannot be opened: " + system_message(), "check the path");
  }
  struct stat info{};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    throw Error(ErrorKind::data, path.string() + ": not a regular file", "a file was expected here, not a folder");
  }
  if (static_cast<uint64_t>(info.st_size) > max_bytes) {
    throw Error(ErrorKind::data, path.string() + ": " + std::to_string(info.st_size) + " bytes, at most " +
                                     std::to_string(max_bytes) + " are read");
  }
  std::string content;
  content.reserve(static_cast<size_t>(info.st_size) + kRoomBehind);
  advise_huge_pages(content.data(), content.capacity());
  content.resize(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ErrorKind::data, path.string() + ": read failed: " + system_message());
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

void write_all(int descriptor, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw Error(ErrorKind::resources, path.string() + ": write failed: " + system_message(),
                  "free some space or choose another folder; what was there before is untouched");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void sync_path(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::fsync(file.get()) != 0) {
    throw Error(ErrorKind::resources, path.string() + ": cannot be written to disk: " + system_message());
  }
}

void write_file(const fs::path& path, const std::function<void(int)>& write) {
  const fs::path temporary = temporary_name(path);
  try {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) {
      throw Error(ErrorKind::resources, path.string() + ": cannot be written: " + system_message(),
                  "does the folder exist, and may this user write there?");
    }
    write(file.get());
    if (::fsync(file.get()) != 0) {
      throw Error(ErrorKind::resources, path.string() + ": fsync failed: " + system_message());
    }
    rename_or_throw(temporary, path);
  } catch (...) {
    std::error_code ignored;  // the first error is the one to report
    fs::remove(temporary, ignored);
    throw;
  }
  sync_path(parent_of(path));
}

void write_file(const fs::path& path, std::string_view content) {
  write_file(path, [&](int descriptor) {
    write_all(descriptor, std::as_bytes(std::span(content.data(), content.size())), path);
  });
}

namespace {

// Temporary names end with the number of the process that writes them.
bool writer_is_dead(const std::string& name) {
  pid_t process = 0;
  const char* digits = name.data() + name.rfind('-') + 1;
  const auto [end, code] = std::from_chars(digits, name.data() + name.size(), process);
  return code == std::errc() && end == name.data() + name.size() && process > 0 && ::kill(process, 0) != 0 &&
         errno == ESRCH;
}

// Folders that transactions of `target` were filling when they were killed.
void remove_dead_folders(const fs::path& target) {
  const std::string name = target.filename().string();
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator entry(parent_of(target), code), end; !code && entry != end; entry.increment(code)) {
    const std::string other = entry->path().filename().string();
    const bool ours = other.starts_with(name + ".tmp-") || other.starts_with(name + ".old-");
    if (ours && writer_is_dead(other) && entry->symlink_status(code).type() == fs::file_type::directory) {
      found.push_back(entry->path());
    }
  }
  for (const fs::path& folder : found) {
    // Killed between the two steps of commit(): this is the only whole one.
    if (folder.filename().string().starts_with(name + ".old-") && !fs::exists(target)) {
      fs::rename(folder, target, code);
    } else {
      fs::remove_all(folder, code);
    }
  }
}

}  // namespace

FolderTransaction::FolderTransaction(fs::path target, bool replace) : target_(std::move(target)), replace_(replace) {
  if (target_.filename().empty()) target_ = target_.parent_path();
  remove_dead_folders(target_);
  if (!replace_ && fs::exists(target_)) {
    throw Error(ErrorKind::usage, target_.string() + ": exists already", "choose another folder or remove this one");
  }
  std::error_code code;
  fs::create_directories(parent_of(target_), code);
  temporary_ = temporary_name(target_);
  fs::remove_all(temporary_, code);
  if (!fs::create_directory(temporary_, code)) {
    throw Error(ErrorKind::resources, temporary_.string() + ": cannot be created: " + code.message(),
                "may this user write there, and is there space?");
  }
}

FolderTransaction::~FolderTransaction() {
  std::error_code ignored;  // a destructor must not throw; what stays is a folder named .tmp, never taken for whole
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void FolderTransaction::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(temporary_)) sync_path(entry.path());
  sync_path(temporary_);
  fs::path old;
  if (replace_ && fs::exists(target_)) {
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
      old = temporary_;
    } else {  // two steps; whoever is killed between them leaves the old folder under this name
      old = target_;
      old += ".old-" + std::to_string(::getpid());
      rename_or_throw(target_, old);
      rename_or_throw(temporary_, target_);
    }
  } else {
    rename_or_throw(temporary_, target_);
  }
  committed_ = true;
  sync_path(parent_of(target_));
  std::error_code ignored;  // the new folder is in place; what stays is removed by the next writer
  if (!old.empty()) fs::remove_all(old, ignored);
}

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    throw Error(ErrorKind::data, path.string() + ": cannot be opened: " + system_message(), "check the path");
  }
  struct stat info{};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    throw Error(ErrorKind::data, path.string() + ": empty, or not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) throw Error(ErrorKind::resources, path.string() + ": cannot be mapped: " + system_message());
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->data_ = static_cast<const std::byte*>(data);
  mapped->size_ = size;
  mapped->path_ = path;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  static const auto tables = make_crc_tables();
  uint32_t crc = ~previous;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {  // eight bytes a step: a checkpoint of a gigabyte takes a second, not ten
    uint32_t low, high;
    std::memcpy(&low, bytes.data() + i, 4);
    std::memcpy(&high, bytes.data() + i + 4, 4);
    low ^= crc;
    crc = tables[7][low & 0xFF] ^ tables[6][(low >> 8) & 0xFF] ^ tables[5][(low >> 16) & 0xFF] ^ tables[4][low >> 24] ^
          tables[3][high & 0xFF] ^ tables[2][(high >> 8) & 0xFF] ^ tables[1][(high >> 16) & 0xFF] ^
          tables[0][high >> 24];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<uint32_t>(bytes[i])) & 0xFF];
  return ~crc;
}

fs::path inside(const fs::path& folder, const std::string& name) {
  // What the system would refuse, or cut at the zero byte.
  const auto too_long = [](const fs::path& part) { return part.string().size() > NAME_MAX; };
  if (const fs::path path(name); name.size() >= PATH_MAX || name.find('\0') != std::string::npos ||
                                 std::any_of(path.begin(), path.end(), too_long)) {
    throw Error(ErrorKind::format,
                folder.string() + ": the name '" + name.substr(0, std::min<size_t>(name.find('\0'), 60)) + "...' of " +
                    std::to_string(name.size()) + " bytes cannot be one of a file",
                "files of a model lie in its folder under names of at most " + std::to_string(NAME_MAX) + " bytes");
  }
  const fs::path relative = fs::path(name).lexically_normal();
  if (name.empty() || relative.is_absolute() || relative.begin()->string() == "..") {
    throw Error(ErrorKind::format, folder.string() + ": the name '" + name + "' leads out of the folder",
                "files of a model lie in its folder; do not use this one");
  }
  return folder / relative;
}

}  // namespace pacer
