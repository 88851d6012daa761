#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "pacer/base/error.h"
#include "pacer/base/random.h"
#include "tests/formats/mutation.h"
#include "tests/support/cost.h"
#include "tests/support/files.h"

namespace pacer::test {

void for_mutations(const std::string& original, int count, size_t region,
                   const std::function<uint64_t(const std::filesystem::path&)>& load) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "damaged";
  region = std::min(region, original.size());
  int refused = 0;
  const MemoryWatch memory;
  for (int i = 0; i < count; ++i) {
    const RandomStream random(1, Purpose::test, static_cast<uint64_t>(i));
    std::string damaged = original;
    if (i % 8 == 0) {
      damaged.resize(random.below(0, original.size()));
    } else {
      const uint64_t changes = 1 + random.below(0, 8);
      for (uint64_t change = 0; change < changes; ++change) {
        const size_t bound = random.below(10 + change, 8) == 0 ? original.size() : region;
        char& byte = damaged[random.below(20 + change, bound)];
        // Half of the time a single bit, else an extreme value: the two ways in which sizes become absurd.
        const uint64_t kind = random.below(30 + change, 4);
        byte = kind < 2 ? static_cast<char>(byte ^ (1 << random.below(40 + change, 8))) : kind == 2 ? '\xff' : '\0';
      }
    }
    std::ofstream(path, std::ios::binary) << damaged;
    const double start = cpu_seconds();
    try {
      load(path);
    } catch (const Error& error) {
      ++refused;
      EXPECT_FALSE(std::string(error.what()).empty());
    } catch (const std::exception& error) {
      ADD_FAILURE() << "mutation " << i << ": " << error.what();
    }
    EXPECT_LT(cpu_seconds() - start, 1.0) << "mutation " << i;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(memory.growth(), uint64_t{100} << 20);
}

#ifndef PACER_ADDRESS_SANITIZER
TEST(MemoryWatch, SeesWhatIsTakenAndGivenBack) {
  const MemoryWatch memory;
  {
    const std::string taken(size_t{150} << 20, 'x');
    EXPECT_EQ(taken.back(), 'x');
  }
  EXPECT_GT(memory.growth(), uint64_t{140} << 20);
  EXPECT_LT(MemoryWatch().growth(), uint64_t{10} << 20);
}
#endif

}  // namespace pacer::test
