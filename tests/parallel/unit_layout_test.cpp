#include "pacer/parallel/unit_layout.h"

#include <set>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"

namespace pacer::parallel {
namespace {

using ::testing::ElementsAre;

TEST(UnitLayout, OwnersInTheOrderOfTheirRowsThenWhatEveryRowKeeps) {
  const std::vector<LayoutParameter> parameters = {
      {"a", {10, 10}, Route::muon, Placement::owner, {0, 1}},
      {"b", {3}, Route::adamw, Placement::owner, {0, 0}},
      {"c", {5000}, Route::sharded_adamw, Placement::sharded, {}},
      {"d", {7}, Route::adamw, Placement::replicated, {}},
  };
  const UnitLayout unit = make_unit_layout("u", parameters, {2, 2});
  const ShardPart& first = unit.shards[0];
  EXPECT_THAT(first.owner_counts, ElementsAre(3, 100));
  EXPECT_EQ(first.pieces[0].parameter, 1u);
  EXPECT_EQ(first.pieces[1].parameter, 0u);
  EXPECT_EQ(first.pieces[1].offset, 3);
  EXPECT_EQ(first.common_count, 3 * 1024 + 7) << "5 blocks over 2 ranks: 3 and 2";
  EXPECT_EQ(unit.shards[1].common_count, 5000 - 3 * 1024);
  EXPECT_EQ(unit.shards[1].owner_total(), 0);
  EXPECT_EQ(unit.total(), 100 + 3 + 5000 + 7);
}

TEST(UnitLayout, OneMessageHasOneDtype) {
  EXPECT_THROW(make_unit_layout("u",
                                {{"a", {1}, Route::muon, Placement::owner, {}, at::kFloat, at::kFloat},
                                 {"b", {1}, Route::muon, Placement::owner, {}, at::kFloat, at::kBFloat16}},
                                {1, 2}),
               Error);
}

// Every element of every parameter lies in exactly one place of a message, and chunks begin at blocks.
RC_GTEST_PROP(UnitLayoutProperties, EveryElementOnce, ()) {
  const Mesh mesh{*rc::gen::inRange<int64_t>(1, 4), *rc::gen::inRange<int64_t>(1, 6)};
  const auto count = *rc::gen::inRange<size_t>(1, 8);
  std::vector<LayoutParameter> parameters;
  for (size_t i = 0; i < count; ++i) {
    const auto placement = static_cast<Placement>(*rc::gen::inRange(0, 3));
    parameters.push_back({"p" + std::to_string(i),
                          {*rc::gen::inRange<int64_t>(0, 9000)},
                          Route::adamw,
                          placement,
                          {*rc::gen::inRange<int64_t>(0, mesh.shard), *rc::gen::inRange<int64_t>(0, mesh.replicate)}});
  }
  const UnitLayout unit = make_unit_layout("u", parameters, mesh);
  std::vector<std::vector<int>> seen;
  for (const LayoutParameter& p : parameters) seen.emplace_back(static_cast<size_t>(p.elements()), 0);
  int64_t total = 0;
  for (size_t shard = 0; shard < unit.shards.size(); ++shard) {
    int64_t offset = 0;
    for (const Piece& piece : unit.shards[shard].pieces) {
      RC_ASSERT(piece.offset == offset);
      offset += piece.count;
      RC_ASSERT(piece.count == 0 || piece.begin % kBlock == 0);
      for (int64_t i = 0; i < piece.count; ++i) ++seen[piece.parameter][static_cast<size_t>(piece.begin + i)];
    }
    RC_ASSERT(offset == unit.shards[shard].total());
    total += offset;
  }
  RC_ASSERT(total == unit.total());
  for (const auto& counts : seen) {
    for (const int times : counts) RC_ASSERT(times == 1);
  }
}

}  // namespace
}  // namespace pacer::parallel
