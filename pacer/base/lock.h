// One process at a time: a lock on a file that ends with its holder, also by kill -9.
#pragma once

#include <filesystem>
#include <string>

namespace pacer {

class FileLock {
 public:
  // Creates the file where it is missing, locks it and writes the number of this process into it.
  // Throws Error{usage} when another process has it: `busy` ("PLACE: another process trains in this folder"), its
  // number, and `hint`. Throws Error{resources} when the file cannot be written or its file system has no locks.
  FileLock(const std::filesystem::path& file, const std::string& busy, const std::string& hint);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

// Locks an open file or folder. False when another process has it. Throws Error{resources} with `place` when its file
// system has no locks.
bool try_lock(int descriptor, const std::filesystem::path& place);

// Removes PATH.tmp-*: what writers of this file (base/files.h) left behind that were killed. For the holder of a lock
// that keeps other writers out.
void remove_leftovers(const std::filesystem::path& path);
// The same for whatever file of this folder (not of the folders in it): for the holder of a lock on all of them.
void remove_all_leftovers(const std::filesystem::path& folder);

}  // namespace pacer
