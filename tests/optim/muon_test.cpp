#include "pacer/optim/muon.h"

#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::optim {
namespace {

using Form = NewtonSchulzOptions::Form;

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// A run of the golden file: ten steps with given gradients.
struct Trajectory {
  nlohmann::json settings;
  std::vector<std::string> names;
  at::ScalarType dtype = at::kFloat;  // of weights and gradients
};

using Snapshot = std::function<void(int64_t step, const std::string& name, const MuonParameter& parameter)>;

void run(const test::GoldenTensors& golden, const Trajectory& run, const MuonOptions& options, const Snapshot& after) {
  std::vector<MuonParameter> parameters;
  for (const std::string& name : run.names) {
    MuonParameter p;
    p.name = name;
    p.weight = golden["init." + name].to(run.dtype);
    p.momentum = zero_momentum(p.weight, options);
    p.weight_decay = run.settings["weight_decay"];
    parameters.push_back(p);
  }
  for (int64_t step = 1; step <= 10; ++step) {
    for (MuonParameter& p : parameters) {
      p.rate = run.settings["lr_per_step"][static_cast<size_t>(step - 1)];
      p.gradient = golden["grad." + p.name + "." + std::to_string(step - 1)].to(run.dtype);
    }
    muon_update(parameters, options);
    for (const MuonParameter& p : parameters) after(step, p.name, p);
  }
}

nlohmann::json settings_of(const std::string& name) {
  for (const auto& entry : test::golden_json("muon/muon_trajectories.json")) {
    if (entry["name"] == name) return entry;
  }
  throw std::runtime_error("no trajectory " + name);
}

MuonOptions options_of(const nlohmann::json& settings, at::ScalarType storage) {
  MuonOptions options;
  options.momentum = settings["momentum"];
  options.nesterov = settings["nesterov"];
  options.newton_schulz.form = settings["ns_backend"] == "gram" ? Form::gram : Form::direct;
  options.newton_schulz.normalisation = NewtonSchulzOptions::Normalisation::absolute;
  options.newton_schulz.storage = storage;
  options.newton_schulz.restarts.clear();
  if (!settings["restart_iterations"].is_null()) {
    options.newton_schulz.restarts = settings["restart_iterations"].get<std::vector<int64_t>>();
  }
  return options;
}

class MuonTrajectories : public ::testing::TestWithParam<std::string> {
 protected:
  test::GoldenTensors golden{"muon/muon_trajectories.safetensors"};
};

TEST_P(MuonTrajectories, TenStepsAsRecorded) {
  const Trajectory trajectory{settings_of(GetParam()), {"a", "b", "conv"}};
  const auto stored = [&](int64_t step, const std::string& name) {
    return GetParam() + ".step" + std::to_string(step) + "." + name;
  };
  // The recorded iteration ran in f16, ours in f32.
  int64_t compared = 0;
  run(golden, trajectory, options_of(trajectory.settings, at::kFloat),
      [&](int64_t step, const std::string& name, const MuonParameter& p) {
        if (!golden.has(stored(step, name))) return;
        ++compared;
        EXPECT_LE(largest_difference(p.weight, golden[stored(step, name)]), 1e-3) << step << name;
        if (step < 10) return;
        EXPECT_LE(largest_difference(p.weight, golden[GetParam() + ".exact_f64.step10." + name]), 1e-4) << name;
        const at::Tensor momentum = golden[GetParam() + ".momentum10." + name];
        EXPECT_TRUE(test::close(p.momentum.view(momentum.sizes()), momentum, 1e-6, 1e-6)) << name;
      });
  EXPECT_EQ(compared, 12);
  // In f16, the storage of the recorded run, and in bf16.
  for (const auto& [storage, tolerance] : {std::pair{at::kHalf, 1e-3}, {at::kBFloat16, 3e-3}}) {
    run(golden, trajectory, options_of(trajectory.settings, storage),
        [&, bound = tolerance](int64_t step, const std::string& name, const MuonParameter& p) {
          if (step != 10) return;
          EXPECT_LE(largest_difference(p.weight, golden[stored(step, name)]), bound) << name;
        });
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, MuonTrajectories, ::testing::Values("dmuon0", "dmuon1", "dmuon2"));

// Weights, gradients and momentum in bf16. The recorded run rounded between the operations of a step too, which we do
// not: we have to be closer to the exact result than it was, and as close to it as two such runs are.
TEST(MuonTrajectoriesBf16, TenSteps) {
  const test::GoldenTensors golden("muon/muon_trajectories.safetensors");
  const Trajectory trajectory{settings_of("dmuon3"), {"a", "b", "conv"}, at::kBFloat16};
  MuonOptions options = options_of(trajectory.settings, at::kHalf);
  options.momentum_dtype = at::kBFloat16;
  run(golden, trajectory, options, [&](int64_t step, const std::string& name, const MuonParameter& p) {
    if (step != 10) return;
    const at::Tensor exact = golden["dmuon3.exact_f64.step10." + name], stored = golden["dmuon3.step10." + name];
    const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
      return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
    };
    EXPECT_LE(largest_difference(p.weight, exact), trajectory.settings["max_abs_diff_to_exact"].get<double>()) << name;
    EXPECT_LE(distance(p.weight, exact), distance(stored, exact)) << name;
    EXPECT_LE(distance(p.weight, stored), 2 * distance(stored, exact)) << name;
    const at::Tensor momentum = golden["dmuon3.momentum10." + name];
    EXPECT_EQ(p.momentum.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(test::close_l2(p.momentum.view(momentum.sizes()).to(at::kFloat), momentum.to(at::kFloat), 1e-2));
  });
}

class TorchMuonTrajectories : public ::testing::TestWithParam<std::string> {};

TEST_P(TorchMuonTrajectories, TenStepsAsRecorded) {
  const test::GoldenTensors golden("muon/muon_trajectories.safetensors");
  const Trajectory trajectory{settings_of(GetParam()), {"a", "b"}};
  const auto& settings = trajectory.settings;
  const bool rms = settings["adjust_lr_fn"] == "match_rms_adamw";
  MuonOptions options = torch_muon(rms ? UpdateScale::match_rms_adamw : UpdateScale::original, settings["ns_steps"]);
  options.momentum = settings["momentum"];
  options.nesterov = settings["nesterov"];
  // The recorded iteration is bf16.
  for (const auto& [storage, bound] : {std::pair{at::kBFloat16, 3e-3}, {at::kFloat, 1.5e-3}}) {
    if (storage == at::kFloat && settings["ns_steps"] != 5) continue;
    options.newton_schulz.storage = storage;
    int64_t compared = 0;
    run(golden, trajectory, options, [&, bound = bound](int64_t step, const std::string& name, const MuonParameter& p) {
      const std::string stored = GetParam() + ".f32.step" + std::to_string(step) + "." + name;
      if (!golden.has(stored)) return;
      ++compared;
      EXPECT_LE(largest_difference(p.weight, golden[stored]), bound) << stored;
      if (step == 10) {
        EXPECT_TRUE(test::close(p.momentum, golden[GetParam() + ".f32.momentum10." + name], 1e-6, 1e-6));
      }
    });
    EXPECT_EQ(compared, 6);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, TorchMuonTrajectories,
                         ::testing::Values("torchmuon0", "torchmuon1", "torchmuon2", "torchmuon3"));

TEST(UpdateScale, IsTheRecordedOne) {
  for (const auto& row : test::golden_json("muon/lr_scale.json")) {
    const double rate = row["lr"];
    const int64_t m = row["shape"][0], n = row["shape"][1];
    EXPECT_DOUBLE_EQ(rate * update_scale(UpdateScale::original, m, n), row["original"].get<double>());
    EXPECT_DOUBLE_EQ(rate * update_scale(UpdateScale::match_rms_adamw, m, n), row["match_rms_adamw"].get<double>());
    EXPECT_DOUBLE_EQ(rate * update_scale(parse_update_scale("match_rms_adamw"), m, n), row["dmuon"].get<double>());
    EXPECT_EQ(update_scale(UpdateScale::none, m, n), 1.0);
  }
  EXPECT_THROW(parse_update_scale("moonlight"), Error);
}

MuonParameter parameter(const std::string& name, const std::vector<int64_t>& sizes, const MuonOptions& options) {
  MuonParameter p;
  p.name = name;
  p.weight = at::randn(sizes);
  p.gradient = at::randn(sizes);
  p.momentum = zero_momentum(p.weight, options);
  p.rate = 0.02;
  return p;
}

MuonParameter copy_of(const MuonParameter& p) {
  MuonParameter copy = p;
  copy.weight = p.weight.clone(), copy.momentum = p.momentum.clone();
  return copy;
}

TEST(Muon, FirstStepByHand) {
  // The momentum of the first step is the gradient, Nesterov's input 1.95 times it, and the factor of a diagonal matrix
  // with positive entries the identity, nearly. Decay comes before the update and by the plain rate.
  MuonOptions options;
  options.newton_schulz.storage = at::kFloat;
  options.newton_schulz.coefficients = Coefficients(30, {1.5, -0.5, 0});
  options.newton_schulz.restarts = {15};
  MuonParameter p = parameter("w", {2, 2}, options);
  p.weight = at::ones({2, 2});
  p.gradient = at::zeros({2, 2});
  p.gradient[0][0] = 3.0, p.gradient[1][1] = 0.5;
  p.rate = 0.1, p.weight_decay = 0.5, p.gradient_scale = 2;
  muon_update({p}, options);
  EXPECT_TRUE(test::same_bits(p.momentum, p.gradient * 2.0));
  const double step = 0.1 * 0.2 * std::sqrt(2.0);
  EXPECT_NEAR(p.weight[0][0].item<double>(), 0.95 - step, 1e-5);
  EXPECT_NEAR(p.weight[1][1].item<double>(), 0.95 - step, 1e-5);
  EXPECT_NEAR(p.weight[0][1].item<double>(), 0.95, 1e-6);
}

TEST(Muon, WithoutAGradientNothingHappens) {
  const MuonOptions options;
  MuonParameter one = parameter("one", {4, 6}, options), other = parameter("other", {4, 6}, options);
  one.weight_decay = other.weight_decay = 0.5;
  other.momentum.fill_(2.0);
  const MuonParameter before = copy_of(other);
  other.gradient = at::Tensor();
  muon_update({one, other}, options);
  EXPECT_TRUE(test::same_bits(other.weight, before.weight));
  EXPECT_TRUE(test::same_bits(other.momentum, before.momentum));
}

TEST(Muon, AGradientThatIsNotFiniteChangesNothing) {
  const MuonOptions options;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 3e38f}) {
    MuonParameter good = parameter("good", {4, 6}, options), wrong = parameter("layers.1.up", {4, 6}, options);
    wrong.gradient[3][5] = bad;
    const MuonParameter before = copy_of(good), wrong_before = copy_of(wrong);
    try {
      muon_update({good, wrong}, options);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_TRUE(std::string(error.what()).starts_with("layers.1.up: the gradient ")) << error.what();
    }
    EXPECT_TRUE(test::same_bits(good.weight, before.weight));
    EXPECT_TRUE(test::same_bits(good.momentum, before.momentum));
    EXPECT_TRUE(test::same_bits(wrong.weight, wrong_before.weight));
    EXPECT_TRUE(test::same_bits(wrong.momentum, wrong_before.momentum));
  }
}

TEST(Muon, BitsOfAParameterAreItsOwn) {
  const MuonOptions options;
  const int threads = at::get_num_threads();
  const MuonParameter a = parameter("a", {300, 200}, options), b = parameter("b", {300, 200}, options),
                      c = parameter("c", {50, 70}, options);
  at::set_num_threads(2);
  const MuonParameter alone = copy_of(b);
  muon_update({alone}, options);
  at::set_num_threads(1);
  const MuonParameter among = copy_of(b);
  muon_update({c, copy_of(a), among}, options);
  at::set_num_threads(threads);
  EXPECT_TRUE(test::same_bits(alone.weight, among.weight));
  EXPECT_TRUE(test::same_bits(alone.momentum, among.momentum));
}

TEST(Muon, AnyShape) {
  const MuonOptions options;
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1, 7}, {7, 1}, {9}, {1}, {0, 4}, {3, 0}, {13, 11}, {4, 3, 2, 5}}) {
    MuonParameter p = parameter("p", sizes, options);
    const at::Tensor before = p.weight.clone();
    muon_update({p}, options);
    const at::Tensor moved = p.weight - before;
    EXPECT_TRUE(std::isfinite(moved.sum().item<double>()));
    if (p.weight.numel() == 0) continue;
    // Root of the sum of squares of an m x n factor is about sqrt(min(m, n)).
    const auto m = static_cast<double>(sizes[0]), n = static_cast<double>(p.weight.numel()) / m;
    const double expected = 0.02 * update_scale(UpdateScale::match_rms_adamw, sizes[0], static_cast<int64_t>(n)) *
                            std::sqrt(std::min(m, n));
    EXPECT_NEAR(moved.norm().item<double>() / expected, 1.0, 0.2) << sizes.size();
  }
}

TEST(Muon, BlocksAreMatricesOfTheirOwn) {
  MuonOptions options;
  options.scale = UpdateScale::match_rms_adamw;
  MuonParameter fused = parameter("qkv", {24, 10}, options);
  fused.layout.row_blocks = {12, 6, 6};
  std::vector<MuonParameter> parts;
  int64_t row = 0;
  for (const int64_t rows : fused.layout.row_blocks) {
    MuonParameter part = parameter("part", {rows, 10}, options);
    part.weight = fused.weight.narrow(0, row, rows).clone();
    part.gradient = fused.gradient.narrow(0, row, rows).clone();
    parts.push_back(part);
    row += rows;
  }
  muon_update({fused}, options);
  muon_update(parts, options);
  EXPECT_TRUE(test::same_bits(fused.weight, at::cat({parts[0].weight, parts[1].weight, parts[2].weight})));

  MuonParameter experts = parameter("experts", {3, 5, 8}, options);
  experts.layout.stacked = true;
  std::vector<MuonParameter> each;
  for (int64_t e = 0; e < 3; ++e) {
    MuonParameter one = parameter("expert", {5, 8}, options);
    one.weight = experts.weight[e].clone(), one.gradient = experts.gradient[e].clone();
    each.push_back(one);
  }
  muon_update({experts}, options);
  muon_update(each, options);
  for (int64_t e = 0; e < 3; ++e) {
    EXPECT_TRUE(test::same_bits(experts.weight[e], each[static_cast<size_t>(e)].weight)) << e;
  }
}

TEST(Muon, RefusesLayoutsThatDoNotFit) {
  EXPECT_THROW(matrix_view("w", {12, 4}, {.stacked = false, .row_blocks = {6, 5}}), Error);
  EXPECT_THROW(matrix_view("w", {12, 4}, {.stacked = false, .row_blocks = {12, 0}}), Error);
  EXPECT_THROW(matrix_view("w", {12, 4}, {.stacked = true, .row_blocks = {}}), Error);
  try {
    matrix_view("gate", {}, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "gate []: a scalar cannot take the route muon");
  }
  const MatrixView view = matrix_view("w", {2, 6, 4}, {.stacked = true, .row_blocks = {4, 2}});
  EXPECT_EQ(view.rows, 12);
  EXPECT_EQ(view.columns, 4);
  ASSERT_EQ(view.blocks.size(), 4u);
  EXPECT_EQ(view.blocks[3].first_row, 10);
}

TEST(Muon, RefusesTensorsAndOptionsThatDoNotFit) {
  MuonOptions options;
  MuonParameter p = parameter("w", {4, 4}, options);
  p.momentum = p.momentum.to(at::kBFloat16);
  EXPECT_THROW(muon_update({p}, options), Error);
  options.momentum_dtype = at::kBFloat16;
  EXPECT_NO_THROW(muon_update({p}, options));
  p.gradient = at::randn({4, 5});
  EXPECT_THROW(muon_update({p}, options), Error);
  options.momentum = 1.0;
  EXPECT_THROW(check_muon(options), Error);
  options.momentum = 0.9;
  options.newton_schulz.restarts.clear();
  EXPECT_THROW(check_muon(options), Error);
}

}  // namespace
}  // namespace pacer::optim
