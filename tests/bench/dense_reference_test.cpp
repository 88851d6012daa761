// The reference of --check against golden numbers of its own: two implementations that agree may both be wrong.
#include "pacer/bench/dense_reference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pacer/base/error.h"
#include "tests/draft/golden_batch.h"

namespace pacer::bench {
namespace {

TEST(DenseReference, HasTheLossAndTheGradientsOfTheGoldenStep) {
  const draft::GoldenBatch golden("dspark/vanilla");
  const draft::LossOptions options = golden.options();
  const auto rows = golden.all_rows();
  const draft::FeatureBatch batch = golden.features(rows);
  const auto training = golden.training(options);
  const DenseStep step = dense_step(golden.config(), training->parameters(), batch, golden.plan(options, batch, rows),
                                    options, *golden.target());
  draft::expect_relative(step.loss, golden.train["loss"].item<double>(), 1e-5, "loss");
  double squares = 0;
  for (const auto& [name, master] : training->parameters()) {
    const double norm = golden.train["grad." + name].to(at::kDouble).norm().item<double>();
    squares += norm * norm;
    EXPECT_FALSE(master.grad().defined()) << "the masters are only read";
  }
  draft::expect_relative(step.gradient_norm, std::sqrt(squares), 1e-4, "gradient norm");
}

TEST(DenseReference, RefusesDraftsThatItDoesNotDescribe) {
  const draft::GoldenBatch golden("dspark/gated");
  const draft::LossOptions options = golden.options();
  const auto rows = golden.all_rows();
  const draft::FeatureBatch batch = golden.features(rows);
  const auto training = golden.training(options);
  EXPECT_THROW(dense_step(golden.config(), training->parameters(), batch, golden.plan(options, batch, rows), options,
                          *golden.target()),
               Error);
}

}  // namespace
}  // namespace pacer::bench
