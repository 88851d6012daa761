#include "pacer/parallel/mesh.h"

#include <set>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"

namespace pacer::parallel {
namespace {

using ::testing::ElementsAre;

TEST(Mesh, NeighboursShareTheShardAxisAndTheTensorAxisIsInnermost) {
  const Mesh mesh{2, 3, 2};
  EXPECT_EQ(mesh.size(), 12);
  EXPECT_EQ(mesh.data_size(), 6);
  EXPECT_EQ(mesh.coordinate(9), (Coordinate{1, 1, 1}));
  EXPECT_THAT(mesh.group(9, Axis::tensor), ElementsAre(8, 9));
  EXPECT_THAT(mesh.group(9, Axis::shard), ElementsAre(7, 9, 11));
  EXPECT_THAT(mesh.group(9, Axis::replicate), ElementsAre(3, 9));
  EXPECT_THAT(mesh.data_group(9), ElementsAre(1, 3, 5, 7, 9, 11));
  EXPECT_EQ(mesh.data_rank(9), 4);
}

TEST(Mesh, ReadsWhatItWrites) {
  EXPECT_EQ(parse_mesh("2x4"), (Mesh{2, 4, 1}));
  EXPECT_EQ(parse_mesh("2x4x8"), (Mesh{2, 4, 8}));
  EXPECT_EQ((Mesh{2, 4, 8}).text(), "2x4x8");
  EXPECT_EQ((Mesh{2, 4}).text(), "2x4");
}

TEST(Mesh, RefusesWhatIsNoMeshAndAnotherNumberOfRanks) {
  for (const char* text : {"", "4", "2x", "x2", "0x4", "-1x4", "2x2x2x2", "2 x 2", "2xtwo", "9999999999x2", "2x2y"}) {
    EXPECT_THROW(parse_mesh(text), Error) << text;
  }
  try {
    require_world({2, 4}, 6);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "the mesh 2x4 has 8 ranks, started are 6");
  }
  EXPECT_THROW((Mesh{2, 2}).coordinate(4), Error);
  require_world({2, 4}, 8);
}

RC_GTEST_PROP(MeshProperties, GroupsOfAnAxisDivideTheRanks, ()) {
  const auto size = [] { return rc::gen::inRange<int64_t>(1, 5); };
  const Mesh mesh{*size(), *size(), *size()};
  for (const Axis axis : {Axis::replicate, Axis::shard, Axis::tensor}) {
    std::multiset<int64_t> seen;
    for (int64_t rank = 0; rank < mesh.size(); ++rank) {
      RC_ASSERT(mesh.rank(mesh.coordinate(rank)) == rank);
      const auto group = mesh.group(rank, axis);
      RC_ASSERT(std::count(group.begin(), group.end(), rank) == 1);
      for (const int64_t member : group) RC_ASSERT(mesh.group(member, axis) == group);
      if (group.front() == rank) seen.insert(group.begin(), group.end());
    }
    for (int64_t rank = 0; rank < mesh.size(); ++rank) RC_ASSERT(seen.count(rank) == 1u);
  }
}

}  // namespace
}  // namespace pacer::parallel
