#include "pacer/base/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace pacer {

void advise_huge_pages(const void* begin, size_t bytes) {
  const auto start = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t end = (start + bytes) / kHugePageBytes * kHugePageBytes;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

}  // namespace pacer
