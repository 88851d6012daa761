#include "pacer/decode/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"
#include "tests/decode/toy.h"
#include "tests/support/tensors.h"

namespace pacer::decode {
namespace {

SamplingOptions at_temperature(double temperature) {
  SamplingOptions options;
  options.temperature = temperature;
  return options;
}

std::vector<float> values(const at::Tensor& row) {
  const at::Tensor host = row.contiguous();
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

TEST(Distribution, EqualsTheGoldenSoftmaxAtEveryTemperature) {
  const test::GoldenTensors golden("spec_sampling/temperature.safetensors");
  int cases = 0;
  for (const std::string& name : golden.names()) {
    const std::string prefix = "probs.T";
    if (!name.starts_with(prefix)) continue;
    const at::Tensor found = distribution(golden["logits"], at_temperature(std::stod(name.substr(prefix.size()))));
    EXPECT_TRUE(test::close(found, golden[name], 1e-6, 1e-6)) << name;
    ++cases;
  }
  EXPECT_GE(cases, 4);
  const at::Tensor wide = golden["bf16.logits"].to(at::kFloat);
  EXPECT_TRUE(test::close(distribution(wide, at_temperature(0.7)), golden["bf16.probs_f32.T0.7"], 1e-6, 1e-6));
}

TEST(Distribution, GreedyTokensAreTheOnesOfTheGoldenOneHotRows) {
  const test::GoldenTensors golden("spec_sampling/temperature.safetensors");
  const std::vector<int64_t> tokens = greedy_tokens(golden["logits"]);
  const at::Tensor one_hot = golden["probs.T0"];
  for (int64_t row = 0; row < one_hot.size(0); ++row) {
    EXPECT_EQ(one_hot[row][tokens[static_cast<size_t>(row)]].item<float>(), 1.0f) << row;
  }
}

RC_GTEST_PROP(Distribution, GreedyIsTheFirstMaximumOfAnyRow, ()) {
  // Few distinct values, so that ties are the rule.
  const auto row = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(-3, 3)));
  std::vector<float> logits(row.begin(), row.end());
  const auto expected = std::max_element(logits.begin(), logits.end()) - logits.begin();
  RC_ASSERT(greedy_tokens(at::tensor(logits))[0] == expected);
}

// Sorts, cuts and rescales without any short cut.
std::vector<double> naive(const std::vector<float>& probabilities, int64_t top_k, double top_p) {
  std::vector<size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return probabilities[a] > probabilities[b]; });
  if (top_k > 0 && static_cast<size_t>(top_k) < order.size()) order.resize(static_cast<size_t>(top_k));
  double total = 0.0, share = 0.0;
  for (const size_t id : order) total += static_cast<double>(probabilities[id]);
  if (top_p < 1.0) {
    size_t kept = 0;
    while (kept < order.size() && share < top_p * total) share += static_cast<double>(probabilities[order[kept++]]);
    order.resize(kept);
  }
  double sum = 0.0;
  for (const size_t id : order) sum += static_cast<double>(probabilities[id]);
  std::vector<double> result(probabilities.size(), 0.0);
  for (const size_t id : order) result[id] = static_cast<double>(probabilities[id]) / sum;
  return result;
}

RC_GTEST_PROP(Distribution, KeepsWhatASortedCutKeeps, ()) {
  const auto vocab = *rc::gen::inRange<int64_t>(1, 60);
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
  SamplingOptions options = at_temperature(*rc::gen::element(0.3, 1.0, 3.0));
  options.top_k = *rc::gen::inRange<int64_t>(0, vocab + 2);
  options.top_p = *rc::gen::element(0.05, 0.5, 0.9, 0.999, 1.0);
  const at::Tensor logits = test::toy_table(3, vocab, seed, 2.0);
  const at::Tensor found = distribution(logits, options);
  const at::Tensor all = distribution(logits, at_temperature(options.temperature));
  for (int64_t row = 0; row < 3; ++row) {
    const std::vector<double> expected = naive(values(all[row]), options.top_k, options.top_p);
    const std::vector<float> kept = values(found[row]);
    for (size_t i = 0; i < kept.size(); ++i) {
      RC_ASSERT((kept[i] == 0.0f) == (expected[i] == 0.0));
      RC_ASSERT(std::abs(static_cast<double>(kept[i]) - expected[i]) < 1e-6);
    }
  }
}

TEST(Distribution, RefusesLogitsThatAreNotNumbers) {
  std::vector<float> logits(40, 1.0f);
  logits[21] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(greedy_tokens(at::tensor(logits)), Error);
  EXPECT_THROW(distribution(at::tensor(logits), at_temperature(1.0)), Error);
}

TEST(DrawToken, CountsTheCumulativeSharesNotAboveTheUniform) {
  const std::vector<float> weights = {0.0f, 1.0f, 0.0f, 2.0f, 1.0f, 0.0f};  // shares 0 1/4 1/4 3/4 1 1
  const auto draw = [&](double u) { return draw_token(std::span<const float>(weights), u); };
  EXPECT_EQ(draw(0.0), 1);
  EXPECT_EQ(draw(0.2499), 1);
  EXPECT_EQ(draw(0.25), 3);
  EXPECT_EQ(draw(0.7499), 3);
  EXPECT_EQ(draw(0.75), 4);
  EXPECT_EQ(draw(std::nextafter(1.0, 0.0)), 4);
}

TEST(CounterUniforms, DependOnWhatIsAskedAndNotOnTheOrder) {
  CounterUniforms forwards(7, 3), backwards(7, 3), other_sample(7, 4), other_seed(8, 3);
  std::vector<double> there, back;
  std::set<double> distinct;
  const auto ask = [](UniformSource& source, int64_t i) {
    return source.uniform(i / 30, i % 30 / 3, static_cast<Draw>(i % 3));
  };
  for (int64_t i = 0; i < 300; ++i) there.push_back(ask(forwards, i));
  for (int64_t i = 299; i >= 0; --i) back.push_back(ask(backwards, i));
  std::reverse(back.begin(), back.end());
  EXPECT_EQ(there, back);
  for (int64_t i = 0; i < 300; ++i) {
    distinct.insert(there[static_cast<size_t>(i)]);
    distinct.insert(ask(other_sample, i));
    distinct.insert(ask(other_seed, i));
  }
  EXPECT_EQ(distinct.size(), 900u);
}

TEST(SamplingOptions, NamesTheOptionThatIsOutOfRange) {
  const auto message = [](auto change) {
    SamplingOptions options;
    change(options);
    try {
      options.check();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message([](SamplingOptions&) {}), "accepted");
  EXPECT_EQ(message([](SamplingOptions& o) { o.temperature = -0.5; }), "temperature is -0.5, allowed is 0 or more");
  EXPECT_EQ(message([](SamplingOptions& o) { o.top_p = 0.0; }), "top_p is 0.0, allowed is above 0 and up to 1");
  EXPECT_EQ(message([](SamplingOptions& o) { o.top_k = -1; }), "top_k is -1, allowed is 0 (off) or more");
  EXPECT_EQ(message([](SamplingOptions& o) { o.max_new_tokens = 0; }), "max_new_tokens is 0, allowed is 1 or more");
}

}  // namespace
}  // namespace pacer::decode
