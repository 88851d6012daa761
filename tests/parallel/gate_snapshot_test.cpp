#include "pacer/parallel/gate_snapshot.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>

namespace pacer::parallel {
namespace {

using ::testing::HasSubstr;

std::string difference(const at::Tensor& a, const at::Tensor& b) {
  return snapshot_difference(snapshot_of({{"w", a}}), snapshot_of({{"w", b}}));
}

TEST(GateComparator, AcceptsTheSameBits) {
  const at::Tensor a = at::rand({7, 5});
  EXPECT_EQ(difference(a, a.clone()), "");
  EXPECT_EQ(difference(a, a.t().contiguous().t()), "") << "strides are no part of a value";
  const Snapshot snapshot = snapshot_of({{"a b", a}, {"c", at::full({}, 3, at::kLong)}});
  EXPECT_EQ(parse_snapshot(to_text(snapshot)), snapshot);
}

TEST(GateComparator, RejectsOneUnitInTheLastPlaceAnywhere) {
  const at::Tensor a = at::rand({1001}) + 0.5;
  for (const int64_t place : {0, 1, 499, 999, 1000}) {
    at::Tensor b = a.clone();
    float* values = b.mutable_data_ptr<float>();
    values[place] = std::nextafter(values[place], 2.0F);
    EXPECT_THAT(difference(a, b), HasSubstr("w: expected Float [1001] ")) << place;
  }
}

TEST(GateComparator, RejectsAFlippedSignOfZero) {
  EXPECT_NE(difference(at::full({3}, 0.0), at::full({3}, -0.0)), "");
  EXPECT_NE(difference(at::full({}, 0.0, at::kDouble), at::full({}, -0.0, at::kDouble)), "");
}

TEST(GateComparator, RejectsNotANumberEvenWithEqualBits) {
  at::Tensor a = at::rand({4});
  a[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(difference(a, a.clone()), HasSubstr("with NaN"));
  EXPECT_NE(difference(at::rand({4}), a), "");
}

TEST(GateComparator, RejectsAnyChangeOfSchema) {
  const at::Tensor a = at::full({1}, 1.0);
  EXPECT_NE(difference(a, a.view({1, 1})), "") << "shape";
  EXPECT_NE(difference(a, a.view({})), "") << "a scalar against one element";
  EXPECT_NE(difference(a, a.to(at::kDouble)), "") << "dtype";
  const Snapshot one = snapshot_of({{"w", a}}), two = snapshot_of({{"w", a}, {"v", a}});
  EXPECT_THAT(snapshot_difference(one, two), HasSubstr("v: expected nothing, found Float [1]"));
  EXPECT_THAT(snapshot_difference(two, one), HasSubstr("found nothing"));
  EXPECT_NE(snapshot_difference(one, snapshot_of({{"W", a}})), "") << "name";
}

TEST(GateComparator, RejectsElementsThatChangedPlaces) {
  const at::Tensor a = at::rand({64});
  at::Tensor b = a.clone();
  b.narrow(0, 0, 2).copy_(a.narrow(0, 8, 2));
  b.narrow(0, 8, 2).copy_(a.narrow(0, 0, 2));
  EXPECT_NE(difference(a, b), "");
}

}  // namespace
}  // namespace pacer::parallel
