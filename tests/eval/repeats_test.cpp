#include "pacer/eval/repeats.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"

namespace pacer::eval {
namespace {

TurnResult turn(const std::string& id, double plain, double paced) {
  TurnResult made;
  made.id = id;
  made.plain.times.verify = {plain, plain};
  made.paced.emplace();
  made.paced->figures.times.verify = {paced, paced};
  return made;
}

std::vector<std::vector<TaskResult>> runs() {
  return {{{"a", {turn("1", 4.0, 2.0), turn("2", 2.0, 2.0)}}, {"b", {turn("1", 1.0, 1.0)}}},
          {{"a", {turn("1", 4.0, 4.0), turn("2", 2.0, 2.0)}}, {"b", {turn("1", 1.0, 2.0)}}},
          {{"a", {turn("1", 4.0, 3.0), turn("2", 2.0, 2.0)}}, {"b", {turn("1", 1.0, 1.25)}}}};
}

TEST(Repeats, TakeTheMedianOfTheQuotientsOfSums) {
  const auto found = repeated_speed_ups(runs());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].task, "a");
  EXPECT_EQ(found[0].runs, (std::vector<double>{1.5, 1.0, 1.2}));
  EXPECT_DOUBLE_EQ(found[0].median, 1.2);
  EXPECT_DOUBLE_EQ(found[0].smallest, 1.0);
  EXPECT_DOUBLE_EQ(found[0].largest, 1.5);
  EXPECT_DOUBLE_EQ(found[1].median, 0.8);
}

TEST(Repeats, NameTheSlowestTask) {
  const OrderedJson json = repeats_json(runs());
  EXPECT_EQ(json["runs"], 3);
  EXPECT_EQ(json["way"], "paced");
  EXPECT_EQ(json["slowest"]["task"], "b");
  EXPECT_DOUBLE_EQ(json["tasks"]["b"]["smallest"].get<double>(), 0.5);
  EXPECT_NE(repeats_table(runs()).find("slowest: b 0.800"), std::string::npos) << repeats_table(runs());
}

TEST(Repeats, RefuseRunsOfDifferentTasks) {
  auto mixed = runs();
  mixed[1][1].name = "c";
  EXPECT_THROW(repeated_speed_ups(mixed), Error);
  EXPECT_THROW(repeated_speed_ups({}), Error);
}

}  // namespace
}  // namespace pacer::eval
