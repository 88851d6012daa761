// Damaged copies of a good file: each either loads or throws pacer::Error, and does it in bounded time and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace pacer::test {

// Makes `count` copies of `original`, cut short or with one to eight bytes changed (mostly in its first `region` bytes,
// where headers are), and calls `load` on each. Fails the test when something other than pacer::Error comes out, when a
// call takes more than a second of processor time, or when nothing at all was refused (the mutations would then miss
// the parser).
void for_mutations(const std::string& original, int count, size_t region,
                   const std::function<uint64_t(const std::filesystem::path&)>& load);

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

}  // namespace pacer::test
