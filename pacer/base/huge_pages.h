// Large tables on large pages.
#pragma once

#include <cstddef>

namespace pacer {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Asks the kernel to back the whole large pages inside of [begin, begin + bytes) as such: fewer page faults while a
// table is filled, fewer misses while it is looked up. Ask before the first write. Only advice: without it only speed
// is lost, and below one large page nothing happens.
void advise_huge_pages(const void* begin, size_t bytes);

}  // namespace pacer
