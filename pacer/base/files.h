// Files that are whole or absent: temporary name, fsync, rename, fsync of the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pacer {

// Reads a whole file. Throws Error{data}: missing, unreadable, or larger than max_bytes.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes = uint64_t{1} << 32);

// Replaces the file in one step; a reader sees the old or the new content, also after a power cut.
// Throws Error{resources} on a full disk or a read-only folder; the old file is then untouched.
void write_file(const std::filesystem::path& path, std::string_view content);

// As write_file, for content that does not fit in memory: `write` receives the open descriptor.
void write_file(const std::filesystem::path& path, const std::function<void(int descriptor)>& write);

// Writes all bytes or throws Error{resources} naming `path`.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path);

// fsync of a file or folder by name.
void sync_path(const std::filesystem::path& path);

// A folder that appears whole: fill `temporary()`, then commit(). The destructor removes what was not committed.
class FolderTransaction {
 public:
  // `target` must not exist, unless replace; its parent is created.
  explicit FolderTransaction(std::filesystem::path target, bool replace = false);
  ~FolderTransaction();
  FolderTransaction(const FolderTransaction&) = delete;
  FolderTransaction& operator=(const FolderTransaction&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();  // fsync of every file and folder inside, rename, fsync of the parent

 private:
  std::filesystem::path target_, temporary_;
  bool replace_;
  bool committed_ = false;
};

// A read-only memory map; the pages are shared with other processes and with the page cache.
class MappedFile {
 public:
  // Throws Error{data} when the file is missing or empty.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

// CRC-32C (Castagnoli), the checksum of every manifest and of TensorBoard records. `previous` continues a sum.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

// Joins a name from a file to its folder. Throws Error{format} when the result would lie outside of it, or no
// file can have that name.
std::filesystem::path inside(const std::filesystem::path& folder, const std::string& name);

}  // namespace pacer
