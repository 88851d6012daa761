#include "pacer/optim/clip_buckets.h"

#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/optim/clip.h"
#include "pacer/optim/exact_norm.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::optim {
namespace {

ClipTensor gradient(const std::string& name, const at::Tensor& values, int64_t multiplicity = 1) {
  return {name, values, multiplicity};
}

ClipBucket bucket(const std::string& name, std::vector<ClipTensor> tensors, bool reduce = true) {
  return {name, std::move(tensors), reduce};
}

// What every back end and every path has to return, before anything else is looked at.
void check_contract(const ClipStatistics& s) {
  for (const at::Tensor& number : {s.total_norm, s.coefficient}) {
    EXPECT_EQ(number.dim(), 0);
    EXPECT_EQ(number.scalar_type(), at::kFloat);
  }
  for (const at::Tensor& flag : {s.clipped, s.found_inf}) {
    EXPECT_EQ(flag.dim(), 0);
    EXPECT_EQ(flag.scalar_type(), at::kBool);
  }
}

struct Order {
  const char* name;
  double p;
};

class GoldenClip : public ::testing::TestWithParam<Order> {};

TEST_P(GoldenClip, NormAndScaledGradientsAsRecorded) {
  const test::GoldenTensors golden("muon/adamw_clip.safetensors");
  for (const auto& [limit, label] : {std::pair{1.0, "max1"}, {100.0, "max100"}}) {
    ClipBucket all = bucket("all", {});
    for (const std::string name : {"m0", "m1", "s0", "v0"}) {
      all.tensors.push_back(gradient(name, golden["clip.grad." + name].clone()));
    }
    const std::string stored = std::string("clip.") + GetParam().name + "." + label + ".";
    const at::Tensor powers = local_powers({all}, GetParam().p, at::kCPU);
    const ClipStatistics statistics = clip_statistics(powers[0], GetParam().p, limit);
    check_contract(statistics);
    EXPECT_TRUE(test::close(statistics.total_norm, golden[stored + "total_norm"], 0, 1e-6));
    scale_gradients(all, statistics.coefficient);
    for (const ClipTensor& tensor : all.tensors) {
      EXPECT_TRUE(test::close(tensor.gradient, golden[stored + tensor.name], 1e-7, 2e-6)) << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, GoldenClip,
                         ::testing::Values(Order{"p1", 1}, Order{"p2", 2}, Order{"pinf", kMaximumNorm}),
                         [](const auto& info) { return std::string(info.param.name); });

// The coefficient of its own, as it multiplies gradients, and not only what it makes of them.
TEST(GoldenClipCoefficient, IsTheLimitOverTheNorm) {
  const test::GoldenTensors golden("muon/adamw_clip.safetensors");
  ClipBucket all = bucket("all", {});
  std::map<std::string, at::Tensor> by_name;
  for (const std::string name : {"m0", "m1", "s0", "v0"}) {
    by_name[name] = golden["clip.grad." + name];
    all.tensors.push_back(gradient(name, by_name[name]));
  }
  const ClipStatistics statistics = clip_statistics(local_powers({all}, 2, at::kCPU)[0], 2, 1.0);
  EXPECT_TRUE(test::close(statistics.total_norm, golden["clip.dmuon.total_norm"], 0, 1e-6));
  EXPECT_TRUE(test::close(statistics.coefficient, golden["clip.dmuon.coef"], 0, 1e-6));
  EXPECT_TRUE(statistics.clipped.item<bool>());
  const double norm = global_norm(by_name);
  EXPECT_NEAR(norm / golden["clip.dmuon.total_norm"].item<double>(), 1, 1e-6);
  EXPECT_NEAR(clip_coefficient(norm, 1.0) / golden["clip.dmuon.coef"].item<double>(), 1, 1e-6);
}

TEST(ClipBuckets, EachHasItsNormAndCoefficient) {
  const test::GoldenTensors golden("muon/adamw_clip.safetensors");
  for (const auto& [label, limit] :
       {std::pair<std::string, std::optional<double>>{"max1", 1.0}, {"maxnone", std::nullopt}}) {
    std::vector<ClipBucket> buckets = {
        bucket("muon", {gradient("muon.0", golden["bucketclip.input.muon.0"].clone()),
                        gradient("muon.1", golden["bucketclip.input.muon.1"].clone())}),
        bucket("adamw", {gradient("adamw.0", golden["bucketclip.input.adamw.0"].clone())}), bucket("empty", {})};
    const at::Tensor powers = local_powers(buckets, 2, at::kCPU);
    const std::string stored = "bucketclip." + label + ".";
    EXPECT_TRUE(test::close(combined_norm(powers, 2), golden[stored + "combined_norm"], 0, 1e-6));
    for (size_t i = 0; i < buckets.size(); ++i) {
      const std::string name = stored + buckets[i].name + ".";
      const ClipStatistics statistics = clip_statistics(powers[static_cast<int64_t>(i)], 2, limit);
      check_contract(statistics);
      EXPECT_TRUE(test::close(statistics.total_norm, golden[name + "total_norm"], 0, 1e-6)) << name;
      EXPECT_TRUE(test::close(statistics.coefficient, golden[name + "coef"], 0, 1e-6)) << name;
      EXPECT_EQ(statistics.clipped.item<bool>(), golden[name + "clipped"].item<int>() != 0) << name;
      EXPECT_FALSE(statistics.found_inf.item<bool>());
      scale_gradients(buckets[i], statistics.coefficient);
    }
    if (label == "maxnone") continue;
    EXPECT_TRUE(test::close(buckets[0].tensors[0].gradient, golden[stored + "muon.0"], 0, 1e-6));
    EXPECT_TRUE(test::close(buckets[0].tensors[1].gradient, golden[stored + "muon.1"], 0, std::ldexp(1.0, -7)));
    EXPECT_TRUE(test::close(buckets[1].tensors[0].gradient, golden[stored + "adamw.0"], 0, 1e-6));
  }
}

TEST(ClipBuckets, ReportWhatIsNotFinite) {
  nlohmann::json overflow;
  for (const auto& entry : test::golden_json("muon/adamw_clip.json")) {
    if (entry["name"] == "bucketclip_overflow") overflow = entry;
  }
  at::Tensor values = at::ones({3});
  values[1] = std::numeric_limits<float>::infinity(), values[2] = 2.0f;
  ClipStatistics s = clip_statistics(local_powers({bucket("b", {gradient("g", values)})}, 2, at::kCPU)[0], 2,
                                     overflow["max_norm"].get<double>());
  check_contract(s);
  EXPECT_TRUE(std::isinf(s.total_norm.item<double>()));
  EXPECT_EQ(s.coefficient.item<double>(), overflow["coef"].get<double>());
  EXPECT_EQ(s.clipped.item<bool>(), overflow["clipped"].get<bool>());
  EXPECT_EQ(s.found_inf.item<bool>(), overflow["found_inf"].get<bool>());

  values[1] = std::numeric_limits<float>::quiet_NaN();
  for (const double p : {1.0, 2.0, 3.0, kMaximumNorm}) {
    for (const std::optional<double> limit : {std::optional<double>(1.0), std::optional<double>()}) {
      s = clip_statistics(local_powers({bucket("b", {gradient("g", values)})}, p, at::kCPU)[0], p, limit);
      check_contract(s);
      EXPECT_TRUE(s.found_inf.item<bool>()) << p;
      EXPECT_FALSE(s.clipped.item<bool>()) << p;
    }
  }
}

// Two ranks as two lists: a replicated tensor, an owner's, a sharded one with an uneven and an empty part.
TEST(ClipBuckets, EveryElementCountsOnce) {
  const at::Tensor replicated = at::randn({7, 3}), owned = at::randn({11}), sharded = at::randn({5});
  const at::Tensor everything = at::cat({replicated.flatten(), owned, sharded});
  const std::vector<ClipBucket> first = {bucket("all", {gradient("replicated", replicated, 2), gradient("owned", owned),
                                                        gradient("sharded", sharded.slice(0, 0, 5))})};
  const std::vector<ClipBucket> second = {
      bucket("all", {gradient("replicated", replicated, 2), gradient("owned", at::Tensor()),
                     gradient("sharded", sharded.slice(0, 5, 5))})};
  const at::Tensor sum = local_powers(first, 2, at::kCPU) + local_powers(second, 2, at::kCPU);
  EXPECT_NEAR(clip_statistics(sum[0], 2, std::nullopt).total_norm.item<double>(), everything.norm().item<double>(),
              1e-5);
  const at::Tensor largest =
      at::stack({local_powers(first, kMaximumNorm, at::kCPU), local_powers(second, kMaximumNorm, at::kCPU)}).amax({0});
  EXPECT_EQ(clip_statistics(largest[0], kMaximumNorm, std::nullopt).total_norm.item<double>(),
            everything.abs().max().item<double>());
}

TEST(ClipBuckets, SomeAreARanksOwnAffair) {
  const std::vector<ClipBucket> buckets = {bucket("local", {gradient("a", at::full({4}, 1.0f))}, /*reduce=*/false),
                                           bucket("shared", {gradient("b", at::full({9}, 1.0f))})};
  const at::Tensor powers = local_powers(buckets, 2, at::kCPU);
  const at::Tensor shared = shared_part(powers, buckets);
  EXPECT_EQ(shared.size(0), 2);  // the collective has the same length on every rank
  EXPECT_EQ(shared[0].item<double>(), 0);
  const at::Tensor reduced = put_back(shared * 3.0, powers, buckets);  // as if three ranks had the same
  EXPECT_EQ(reduced[0].item<double>(), 4);
  EXPECT_EQ(reduced[1].item<double>(), 27);
  EXPECT_EQ(local_powers({}, 2, at::kCPU).size(0), 0);
  EXPECT_EQ(combined_norm(local_powers({}, 2, at::kCPU), 2).item<double>(), 0);
}

TEST(ClipBuckets, RefuseWhatCannotBeMeant) {
  const std::vector<ClipBucket> fine = {bucket("b", {gradient("g", at::ones({2}))})};
  EXPECT_THROW(local_powers(fine, 0.5, at::kCPU), Error);
  EXPECT_THROW(local_powers(fine, std::numeric_limits<double>::quiet_NaN(), at::kCPU), Error);
  EXPECT_THROW(clip_statistics(at::ones({}), 2, -1.0), Error);
  EXPECT_THROW(local_powers({bucket("b", {gradient("g", at::ones({2}, at::kLong))})}, 2, at::kCPU), Error);
  EXPECT_THROW(local_powers({bucket("b", {gradient("g", at::ones({2}), 0)})}, 2, at::kCPU), Error);
}

// T(lo, n) as its definition says it.
float tree(const std::vector<float>& values, size_t lo, size_t n) {
  if (n == 1) return values[lo];
  size_t half = 1;
  while (2 * half < n) half *= 2;
  return tree(values, lo, half) + tree(values, lo + half, n - half);
}

TEST(ExactNorm, TheTreeIsTheDefinedOne) {
  const at::Tensor values = at::randn({40}) * at::randn({40}).exp();
  for (int64_t n = 1; n <= 40; ++n) {
    const at::Tensor part = values.slice(0, 0, n);
    const std::vector<float> plain(part.const_data_ptr<float>(), part.const_data_ptr<float>() + n);
    EXPECT_EQ(tree_sum(part).item<float>(), tree(plain, 0, plain.size())) << n;
  }
  EXPECT_EQ(tree_sum(values.slice(0, 0, 0)).item<float>(), 0);
  const at::Tensor leaves = at::randn({6, 3, 2});
  const at::Tensor sum = tree_sum_of_leaves(leaves);
  const at::Tensor expected = ((leaves[0] + leaves[1]) + (leaves[2] + leaves[3])) + (leaves[4] + leaves[5]);
  EXPECT_TRUE(test::same_bits(sum, expected));
}

TEST(ExactNorm, DoesNotDependOnHowATensorIsDivided) {
  const at::Tensor whole = at::randn({10'500});
  const at::Tensor sums = block_square_sums(whole);
  ASSERT_EQ(sums.size(0), 11);
  const auto at_place = [&](int64_t begin, int64_t end) {
    at::Tensor padded = at::zeros({11});
    padded.slice(0, begin / 1024, (end + 1023) / 1024).copy_(block_square_sums(whole.slice(0, begin, end)));
    return padded;
  };
  const at::Tensor two = at_place(0, 4096) + at_place(4096, 10'500);
  const at::Tensor four = (at_place(8192, 10'500) + at_place(1024, 2048)) + (at_place(2048, 8192) + at_place(0, 1024));
  EXPECT_TRUE(test::same_bits(two, sums));
  EXPECT_TRUE(test::same_bits(four, sums));
  const double exact = whole.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(tree_sum(sums).item<double>() / exact, 1, 1e-6);
  EXPECT_EQ(block_square_sums(whole.slice(0, 0, 0)).size(0), 0);
}

// The kernel of the CPU against the operations that other devices use.
TEST(ExactNorm, BlocksAreFoldedByHalves) {
  const at::Tensor values = at::randn({2048}), sums = block_square_sums(values);
  for (int64_t block = 0; block < 2; ++block) {
    at::Tensor squares = values.slice(0, block * 1024, (block + 1) * 1024).square();
    for (int64_t half = 512; half > 0; half /= 2)
      squares = squares.slice(0, 0, half) + squares.slice(0, half, 2 * half);
    EXPECT_TRUE(test::same_bits(squares[0], sums[block]));
  }
}

}  // namespace
}  // namespace pacer::optim
