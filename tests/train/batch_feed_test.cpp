#include "pacer/train/batch_feed.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "pacer/base/error.h"
#include "pacer/draft/config.h"
#include "pacer/train/draft_setup.h"
#include "tests/support/files.h"
#include "tests/train/tiny.h"

namespace pacer::train {
namespace {

struct Bench {
  pacer::test::TemporaryFolder folder;
  Recipe recipe = test::tiny_recipe(folder.path());
  draft::LossOptions loss = loss_options(recipe);
  device::Runtime runtime = device::Runtime::open("cpu");
  std::shared_ptr<const target::Target> target = target::Target::load(test::tiny_target(), at::kFloat, runtime);
  std::shared_ptr<const std::vector<data::TokenRow>> rows;
  draft::DraftConfig config;
  std::unique_ptr<draft::DraftTraining> draft;
  SampleOrder order{3, 30, 2, 3};

  explicit Bench(std::vector<data::TokenRow> some = test::tiny_rows(30))
      : rows(std::make_shared<const std::vector<data::TokenRow>>(std::move(some))),
        config(draft_config(recipe, target->config(), *rows)),
        draft(draft::DraftTraining::create(config, loss, target, 3, at::kFloat, runtime)) {}

  FeatureSource source() { return {target, rows, config.target_layer_ids, {4, 1 << 14}}; }

  BatchFeed::PlanOf plan_of(const FeatureSource& features) const {
    return [this, &features](int64_t step) {
      return plan_window(*draft, features, order.window(step), step, recipe, loss);
    };
  }
};

TEST(BatchFeed, GivesTheWindowsAndTheBitsThatAreMadeWhenNeeded) {
  Bench bench;
  FeatureSource ahead = bench.source(), now = bench.source();
  BatchFeed feed(bench.runtime, ahead, bench.plan_of(ahead), 2, 9);
  for (int64_t step = 2; step <= 9; ++step) {
    const WindowPlan& found = feed.next_window();
    const WindowPlan expected =
        plan_window(*bench.draft, now, bench.order.window(step), step, bench.recipe, bench.loss);
    EXPECT_EQ(found.step, step);
    EXPECT_EQ(found.window.micro_batches, expected.window.micro_batches);
    ASSERT_EQ(found.plans.size(), 3u);
    for (size_t i = 0; i < found.plans.size(); ++i) {
      EXPECT_EQ(found.plans[i].anchor, expected.plans[i].anchor);
      EXPECT_EQ(found.scales[i].ce, expected.scales[i].ce);
      const draft::FeatureBatch a = feed.batch(i), b = now.batch(expected.window.micro_batches[i]);
      EXPECT_TRUE(at::equal(a.tapped, b.tapped)) << step;
      EXPECT_TRUE(at::equal(a.last, b.last)) << step;
      EXPECT_TRUE(at::equal(a.ids, b.ids)) << step;
    }
  }
  EXPECT_GT(feed.target_cpu_s(), 0);
  EXPECT_THROW(feed.next_window(), Error);  // the steps are over
}

// The batch behind the one that was taken is made without being asked for.
TEST(BatchFeed, WorksOneBatchAhead) {
  Bench bench;
  FeatureSource source{bench.target, bench.rows, bench.config.target_layer_ids, {1, 0}};  // a pass per row
  std::mutex mutex;
  std::condition_variable changed;
  int passes = 0;
  source.use_log_sums([&](const at::Tensor& last) {
    const std::lock_guard lock(mutex);
    ++passes;
    changed.notify_all();
    return at::full({last.size(0)}, 1.0, at::kFloat);
  });
  BatchFeed feed(bench.runtime, source, bench.plan_of(source), 1, 5);
  feed.next_window();  // two rows
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return passes >= 4; }));
}

TEST(BatchFeed, TheTargetsErrorArrivesAsItselfWithTheBatchThatHasIt) {
  Bench whole;
  auto rows = test::tiny_rows(30);
  const Window window = whole.order.window(2);
  data::TokenRow& bad = rows[static_cast<size_t>(window.micro_batches[1][0])];
  bad.ids[2] = 10'000;  // the target has no such token
  Bench bench(std::move(rows));
  FeatureSource source{bench.target, bench.rows, bench.config.target_layer_ids, {1, 0}};
  std::string expected = "no error";
  try {
    source.batch(window.micro_batches[1]);
  } catch (const std::exception& error) {
    expected = error.what();
  }
  BatchFeed feed(bench.runtime, source, bench.plan_of(source), 2, 3);
  feed.next_window();
  feed.batch(0);
  std::string found = "no error";
  try {
    feed.batch(1);
  } catch (const std::exception& error) {
    found = error.what();
  }
  EXPECT_NE(found, "no error");
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace pacer::train
