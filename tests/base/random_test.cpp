#include "pacer/base/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace pacer {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that the authors publish with their implementation (Random123, kat_vectors, "philox4x32 10").
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(RandomStream, IsAFunctionOfItsArguments) {
  const RandomStream one(7, Purpose::anchors, 3, 5), same(7, Purpose::anchors, 3, 5);
  std::vector<uint64_t> forward, backward;
  for (uint64_t i = 0; i < 100; ++i) forward.push_back(one.bits(i));
  for (uint64_t i = 100; i-- > 0;) backward.insert(backward.begin(), same.bits(i));
  EXPECT_EQ(forward, backward);
}

TEST(RandomStream, EveryArgumentMatters) {
  std::set<uint64_t> seen;
  size_t count = 0;
  for (const uint64_t seed : {0, 1, 2}) {
    for (const Purpose purpose : {Purpose::anchors, Purpose::sampling}) {
      for (uint64_t step = 0; step < 20; ++step) {
        for (uint64_t sample = 0; sample < 20; ++sample) {
          for (uint64_t index = 0; index < 3; ++index, ++count) {
            seen.insert(RandomStream(seed, purpose, step, sample).bits(index));
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), count) << "two of 7,200 streams of 64 bits that agree are no accident";
}

// Bounds are five standard deviations of the estimate: a correct generator with this fixed seed is far inside.
TEST(RandomStream, UniformNumbersFillTheInterval) {
  constexpr int kDraws = 100000;
  constexpr int kBins = 20;
  const RandomStream stream(1, Purpose::test);
  std::vector<int> bins(kBins);
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = stream.uniform(static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    ++bins[static_cast<size_t>(u * kBins)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  const double expected = static_cast<double>(kDraws) / kBins;
  double chi_square = 0;
  for (const int count : bins) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 43.8) << "19 degrees of freedom, p = 0.001";
}

// The same law as normal(), checked by its own formula: Box-Muller in f64 on the words of the published generator.
TEST(RandomStream, NormalNumbersInBulkAreBoxMullerOnTheBlocks) {
  constexpr size_t kDraws = 100003;
  const RandomStream stream(3, Purpose::test, 4, 5);
  std::vector<float> bulk(kDraws), few(37);
  stream.fill_normal(bulk.data(), bulk.size());
  stream.fill_normal(few.data(), few.size());
  EXPECT_TRUE(std::equal(few.begin(), few.end(), bulk.begin())) << "the first numbers do not depend on the count";
  double moments[5] = {};
  for (size_t i = 0; i < kDraws; ++i) {
    const uint64_t low = stream.bits(i / 4);  // the first two words of block i / 4
    if (i % 4 < 2) {
      const double u = (static_cast<double>((low & 0xFFFFFFFF) >> 8) + 0.5) * 0x1p-24;
      const double angle = 2 * std::numbers::pi * static_cast<double>(low >> 32) * 0x1p-32;
      const double expected = std::sqrt(-2 * std::log(u)) * (i % 4 == 0 ? std::cos(angle) : std::sin(angle));
      ASSERT_NEAR(bulk[i], expected, 2e-6 * (1 + std::abs(expected))) << i;
    }
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(bulk[i], k) / kDraws;
  }
  const double n = std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(moments[1], 0, 5 / n);
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0) / n);
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0) / n);
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0) / n);
}

TEST(RandomStream, NormalNumbersHaveTheMomentsOfTheNormalLaw) {
  constexpr int kDraws = 100000;
  const RandomStream stream(2, Purpose::test);
  double moments[5] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.normal(static_cast<uint64_t>(i));
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / kDraws;
  }
  EXPECT_NEAR(moments[1], 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0 / kDraws));
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0 / kDraws));
}

TEST(RandomStream, BelowReachesEveryValueAndNoOther) {
  const RandomStream stream(3, Purpose::test);
  std::vector<int> seen(7);
  for (uint64_t i = 0; i < 7000; ++i) {
    const uint64_t value = stream.below(i, 7);
    ASSERT_LT(value, 7u);
    ++seen[value];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000.0));
  EXPECT_EQ(stream.below(0, 1), 0u);
}

}  // namespace
}  // namespace pacer
