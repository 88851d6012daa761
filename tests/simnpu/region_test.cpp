#include "plugins/simnpu/memory/region.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "plugins/simnpu/memory/history.h"

namespace pacer::simnpu {
namespace {

// The naive reference: every byte of a view.
std::set<uintptr_t> bytes_of(uintptr_t address, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                             size_t element) {
  std::set<uintptr_t> bytes;
  size_t count = 1;
  for (const int64_t size : sizes) count *= static_cast<size_t>(size);
  for (size_t i = 0; i < count; ++i) {
    uintptr_t at = address;
    size_t rest = i;
    for (size_t d = sizes.size(); d-- > 0;) {
      at += (rest % static_cast<size_t>(sizes[d])) * static_cast<size_t>(strides[d]) * element;
      rest /= static_cast<size_t>(sizes[d]);
    }
    for (size_t b = 0; b < element; ++b) bytes.insert(at + b);
  }
  return bytes;
}

bool intersect(const std::set<uintptr_t>& a, const std::set<uintptr_t>& b) {
  for (const uintptr_t byte : a) {
    if (b.count(byte)) return true;
  }
  return false;
}

TEST(Region, OverlapsAndCoversAsTheSetsOfBytesDo) {
  std::mt19937 random(5);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  int overlapping = 0, covered = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::set<uintptr_t> bytes[2];
    std::vector<Region> regions;
    for (auto& set : bytes) {
      std::vector<int64_t> sizes, strides;
      for (int d = draw(0, 3); d > 0; --d) sizes.push_back(draw(0, 4)), strides.push_back(draw(0, 9));
      const auto address = uintptr_t{1000} + static_cast<uintptr_t>(draw(0, 40));
      const auto element = size_t{1} << draw(0, 2);
      set = bytes_of(address, sizes, strides, element);
      regions.emplace_back(address, sizes, strides, element);
      EXPECT_EQ(regions.back().empty(), set.empty());
      if (!set.empty()) {
        EXPECT_EQ(regions.back().begin(), *set.begin());
        EXPECT_EQ(regions.back().end(), *set.rbegin() + 1);
      }
    }
    const bool expected = intersect(bytes[0], bytes[1]);
    overlapping += expected;
    EXPECT_EQ(regions[0].overlaps(regions[1]), expected);
    EXPECT_EQ(regions[1].overlaps(regions[0]), expected);
    if (regions[0].covers(regions[1])) {
      ++covered;
      for (const uintptr_t byte : bytes[1]) EXPECT_TRUE(bytes[0].count(byte));
    }
  }
  EXPECT_GT(overlapping, 500);
  EXPECT_GT(covered, 100);
}

TEST(Region, ColumnsOfOneMatrixAreApart) {
  const std::vector<int64_t> rows = {1024, 64}, strides = {192, 1};
  const Region query(4096, rows, strides, 4), key(4096 + 64 * 4, rows, strides, 4);
  const Region both(4096, {1024, 65}, strides, 4);
  EXPECT_FALSE(query.overlaps(key));
  EXPECT_TRUE(both.overlaps(key));
  EXPECT_TRUE(Region::bytes(4096, 1024 * 192 * 4).covers(key));
}

TEST(History, ForgetsWhatALaterAccessStandsFor) {
  static const std::string kernel = "kernel";
  const auto past = [&](uintptr_t at, bool write, Actor actor, uint64_t tick) {
    return PastAccess{{Region::bytes(at, 16), write}, actor, tick, &kernel};
  };
  History history;
  VectorClock nobody, first, both;
  first.advance(0);
  both.merge(first);
  both.advance(1);
  history.add(past(0, true, 0, 1), nobody);
  EXPECT_NE(history.conflict({Region::bytes(8, 1), false}, nobody), nullptr) << "a read that does not know the write";
  EXPECT_EQ(history.conflict({Region::bytes(16, 1), true}, nobody), nullptr) << "other bytes";
  EXPECT_EQ(history.conflict({Region::bytes(8, 1), true}, first), nullptr) << "who knows it may";
  history.add(past(0, false, 1, 1), nobody);
  history.add(past(0, false, 2, 1), nobody);
  EXPECT_EQ(history.size(), 3u) << "reads of different streams have no order";
  EXPECT_EQ(history.conflict({Region::bytes(0, 4), false}, both), nullptr) << "two reads never race";
  EXPECT_NE(history.conflict({Region::bytes(0, 4), true}, both), nullptr) << "a write after an unknown read";
  history.add(past(0, false, 2, 2), nobody);
  EXPECT_EQ(history.size(), 3u) << "a later read stands for an earlier one of its stream";
  history.add(past(32, false, 3, 1), both);
  EXPECT_EQ(history.size(), 2u) << "what everybody knows is gone";
  history.add(past(0, true, 2, 3), nobody);
  EXPECT_EQ(history.size(), 2u) << "a write stands for all that it came after";
}

}  // namespace
}  // namespace pacer::simnpu
