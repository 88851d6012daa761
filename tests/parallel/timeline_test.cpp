#include "pacer/parallel/timeline.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace pacer::parallel {
namespace {

Timeline two_layers(const Mesh& mesh, bool free_weights) {
  return make_timeline({.calls = {{0}, {1}}, .units = 2, .free_weights = free_weights}, mesh);
}

TEST(Timeline, IsOneStepAndTheForwardBehindIt) {
  EXPECT_EQ(two_layers({2, 1}, false).work,
            (std::vector<std::string>{"forward 0", "forward 1", "backward 1", "backward 0", "rest", "norm", "update 0",
                                      "update 1", "forward 0", "forward 1"}));
}

TEST(Timeline, HasOnlyTheMessagesOfItsMesh) {
  const auto purposes = [](const Timeline& timeline) {
    std::vector<std::string> found;
    for (const auto& message : timeline.messages) {
      if (std::find(found.begin(), found.end(), message.purpose) == found.end()) found.push_back(message.purpose);
    }
    return found;
  };
  EXPECT_TRUE(two_layers({1, 1}, false).messages.empty());
  EXPECT_EQ(purposes(two_layers({2, 1}, false)),
            (std::vector<std::string>{"reduce over the rows", "publish over the rows"}));
  EXPECT_EQ(purposes(two_layers({1, 2}, true)), (std::vector<std::string>{"acquire", "reduce in the row"}));
}

TEST(Timeline, ItsPictureHasEveryBlockAndEveryBar) {
  const Timeline timeline = two_layers({2, 2}, true);
  const std::string svg = timeline_svg(timeline, {"first<layer>", "second & last"});
  const auto count = [&](const std::string& what) {
    size_t times = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++times;
    return times;
  };
  EXPECT_EQ(count("<rect "), 1 + timeline.work.size() + timeline.messages.size());
  EXPECT_EQ(count("first&lt;layer>") + count("second &amp; last"), timeline.messages.size());
  for (const std::string& work : timeline.work) EXPECT_GE(count(">" + work + "<"), 1u) << work;
  EXPECT_TRUE(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace pacer::parallel
