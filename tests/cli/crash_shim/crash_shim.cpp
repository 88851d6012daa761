// Preloaded into the program: kills it just before its N-th operation on the file system (PACER_CRASH_AT=N), a write
// after half of its bytes. With PACER_CRASH_COUNT=FILE it counts instead and writes the number there at the end. So
// every moment at which a crash could leave something behind can be hit, not only those in which a program spends its
// time.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

long number_in(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? -1 : std::atol(value);
}

const long crash_at = number_in("PACER_CRASH_AT");
std::atomic<long> operations = 0;

bool is_the_one() { return ++operations == crash_at; }

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

void before_operation() {
  if (is_the_one()) die();
}

template <typename Function>
Function* real(Function*, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool is_file(int descriptor) {
  struct stat info{};
  return descriptor > 2 && ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
}

struct Report {
  ~Report() {
    const char* path = std::getenv("PACER_CRASH_COUNT");
    if (path == nullptr) return;
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) return;
    std::fprintf(file, "%ld\n", operations.load());
    std::fclose(file);
  }
} report;

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t size) {
  static auto* const call = real(&::write, "write");
  if (is_file(descriptor) && is_the_one()) {
    if (call(descriptor, data, size / 2) < 0) die();
    die();
  }
  return call(descriptor, data, size);
}

int fsync(int descriptor) {
  before_operation();
  static auto* const call = real(&::fsync, "fsync");
  return call(descriptor);
}

int ftruncate(int descriptor, off_t size) noexcept {
  before_operation();
  static auto* const call = real(&::ftruncate, "ftruncate");
  return call(descriptor, size);
}

int rename(const char* from, const char* to) noexcept {
  before_operation();
  static auto* const call = real(&::rename, "rename");
  return call(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned int flags) noexcept {
  before_operation();
  static auto* const call = real(&::renameat2, "renameat2");
  return call(from_folder, from, to_folder, to, flags);
}

int symlink(const char* target, const char* link) noexcept {
  before_operation();
  static auto* const call = real(&::symlink, "symlink");
  return call(target, link);
}

int mkdir(const char* path, mode_t mode) noexcept {
  before_operation();
  static auto* const call = real(&::mkdir, "mkdir");
  return call(path, mode);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  before_operation();
  static auto* const call = real(&::unlinkat, "unlinkat");
  return call(folder, path, flags);
}

int remove(const char* path) noexcept {
  before_operation();
  static auto* const call = real(&::remove, "remove");
  return call(path);
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    std::va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
    before_operation();
  }
  static auto* const call = real(&::open, "open");
  return call(path, flags, mode);
}

}  // extern "C"
