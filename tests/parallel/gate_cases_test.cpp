#include "pacer/parallel/gate.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace pacer::parallel {
namespace {

std::vector<std::string> settings(const GateCase& c) {
  return {c.mesh.text(),
          std::to_string(c.micro_batches),
          name_of(c.accumulation),
          c.different_data ? "different" : "identical",
          c.half_weights ? "bf16" : "f32",
          c.free_weights ? "free" : "kept",
          name_of(c.unshard),
          c.overlap ? "overlap" : "synchronous",
          c.restart_from ? "restart" : "through"};
}

using Pair = std::pair<std::pair<size_t, std::string>, std::pair<size_t, std::string>>;

std::set<Pair> pairs_of(const std::vector<GateCase>& cases) {
  std::set<Pair> pairs;
  for (const GateCase& c : cases) {
    const auto all = settings(c);
    for (size_t a = 0; a < all.size(); ++a) {
      for (size_t b = a + 1; b < all.size(); ++b) pairs.insert({{a, all[a]}, {b, all[b]}});
    }
  }
  return pairs;
}

TEST(GateCases, TwelveCoverEveryPairOfSettings) {
  const auto few = covering_cases(4), all = all_cases(4);
  EXPECT_LE(few.size(), 12u);
  const auto brought = pairs_of(few), wanted = pairs_of(all);
  EXPECT_TRUE(std::ranges::includes(brought, wanted));
  std::set<std::string> names;
  for (const GateCase& c : all) EXPECT_TRUE(names.insert(c.name()).second) << c.name();
  EXPECT_EQ(names.size(), 3u * (1 + 3) * 2 * 2 * 2 * 2 * 2 * 2) << "one micro-batch, or four in three forms";
}

TEST(GateCases, ARestartBeginsOnAnotherMesh) {
  for (const GateCase& c : all_cases(4)) {
    if (c.restart_from) {
      EXPECT_NE(*c.restart_from, c.mesh);
    }
    EXPECT_EQ(c.mesh.size(), 4);
  }
}

}  // namespace
}  // namespace pacer::parallel
