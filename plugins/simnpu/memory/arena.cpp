#include "plugins/simnpu/memory/arena.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pacer/base/error.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::resources, "simnpu: " + what + ": " + std::strerror(errno),
              "set SIMNPU_DEVICE_COUNT, SIMNPU_MEMORY_MB or SIMNPU_PINNED_MB to less");
}

uintptr_t map(int file, size_t bytes, int rights) {
  void* at = mmap(nullptr, bytes, rights, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) refuse("mapping " + std::to_string(bytes) + " bytes");
  return reinterpret_cast<uintptr_t>(at);
}

void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Arena& Arena::get() {
  static auto* arena = new Arena;
  return *arena;
}

Arena::Arena()
    : file_(memfd_create("simnpu", MFD_CLOEXEC)),
      device_bytes_(round_up(settings().memory_bytes, kPage)),
      pinned_bytes_(round_up(settings().pinned_bytes, kPage)),
      total_(device_bytes_ * static_cast<size_t>(settings().device_count) + pinned_bytes_) {
  // The file is sparse: only pages that were touched cost memory.
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(total_)) != 0) refuse("a memory file");
  face_ = map(file_, total_, PROT_NONE);
  worker_ = map(file_, total_, PROT_READ | PROT_WRITE);
  protect_pinned(pinned().begin, pinned().end, Rights::read_write);
}

Arena::Range Arena::device(int index) const {
  const uintptr_t begin = face_ + device_bytes_ * static_cast<size_t>(index);
  return {begin, begin + device_bytes_};
}

Arena::Range Arena::pinned() const { return {face_ + total_ - pinned_bytes_, face_ + total_}; }

bool Arena::contains(uintptr_t face_address) const { return face_ <= face_address && face_address < face_ + total_; }

void* Arena::for_worker(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return pointer(contains(at) ? at - face_ + worker_ : at);
}

void Arena::release(uintptr_t begin, uintptr_t end) const {
  const auto at = static_cast<off_t>(begin - face_);
  if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, static_cast<off_t>(end - begin)) != 0) {
    refuse("giving memory back");
  }
}

void Arena::protect_pinned(uintptr_t begin, uintptr_t end, Rights rights) const {
  const int bits = rights == Rights::none ? PROT_NONE : rights == Rights::read ? PROT_READ : PROT_READ | PROT_WRITE;
  if (mprotect(pointer(begin), end - begin, bits) != 0) refuse("changing the rights of pinned memory");
}

}  // namespace pacer::simnpu
