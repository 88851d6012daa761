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

}  // namespace pacer::test
