// Device and pinned memory: one memory file, mapped twice.
//
// Tensors carry addresses of the first mapping, the face; workers use the second. The face of device memory has no
// access rights, so a host that touches device memory faults at any time, on any thread (memory/fault.h). The face of
// pinned memory is readable and writable except where work that is not over uses it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacer::simnpu {

class Arena {
 public:
  static Arena& get();  // never destroyed: workers outlive main

  struct Range {
    uintptr_t begin, end;
    bool contains(uintptr_t address) const { return begin <= address && address < end; }
  };
  Range device(int index) const;  // face addresses of one device
  Range pinned() const;
  bool contains(uintptr_t face_address) const;

  // Where a worker finds the memory behind an address that a tensor carries; an address outside the arena (pageable
  // host memory) is its own.
  void* for_worker(const void* address) const;

  // Gives the pages of a face range back to the system. They read as zeros afterwards.
  void release(uintptr_t begin, uintptr_t end) const;
  enum class Rights { none, read, read_write };
  void protect_pinned(uintptr_t begin, uintptr_t end, Rights rights) const;  // whole pages

 private:
  Arena();
  int file_;
  size_t device_bytes_, pinned_bytes_, total_;
  uintptr_t face_, worker_;
};

inline constexpr size_t kPage = 4096;
inline size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace pacer::simnpu
