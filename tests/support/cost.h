// What a piece of work takes: processor time and memory, for tests of bounds on files that strangers made.
#pragma once

#include <cstdint>

// GCC and clang say in different ways that they sanitize.
#if defined(__SANITIZE_ADDRESS__)
#define PACER_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PACER_ADDRESS_SANITIZER 1
#endif
#endif

namespace pacer::test {

// How much more memory the process held at its peak than when the watch began.
class MemoryWatch {
 public:
  MemoryWatch();
  uint64_t growth() const;  // bytes; 0 under AddressSanitizer, which keeps freed memory for a while

 private:
  uint64_t start_;
};

// Processor time of this thread, so that a busy machine does not fail a test.
double cpu_seconds();

// How much longer the sanitizers make everything: bounds on time are stretched by it.
#if defined(PACER_ADDRESS_SANITIZER) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 8;
#else
constexpr double kSlowdown = 1;
#endif

}  // namespace pacer::test
