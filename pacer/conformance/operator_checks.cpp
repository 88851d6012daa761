#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include "pacer/base/random.h"
#include "pacer/conformance/checks.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/block_attention.h"
#include "pacer/nn/causal_attention.h"
#include "pacer/nn/linear.h"
#include "pacer/nn/rms_norm.h"
#include "pacer/nn/rope.h"
#include "pacer/nn/vocab_loss.h"

namespace pacer::conformance {
namespace {

constexpr double kPlainBound = 1e-5;  // plain operators on both sides
constexpr double kOwnBound = 1e-4;    // Pacer's kernels on the host's side
constexpr device::KernelPaths kPlain = {device::KernelPath::plain, device::KernelPath::plain};

// Normal numbers that are the same at every run.
class Numbers {
 public:
  at::Tensor operator()(std::vector<int64_t> sizes) {
    at::Tensor values = at::empty(sizes, at::kFloat);
    const RandomStream stream(11, Purpose::test, number_++);
    float* data = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < values.numel(); ++i) data[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
    return values;
  }

 private:
  uint64_t number_ = 0;
};

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

struct Result {
  at::Tensor value;
  std::vector<at::Tensor> gradients;
};

Result evaluate(const device::Runtime& runtime, const std::vector<at::Tensor>& inputs, const at::Tensor& gradient,
                const Function& function, bool differentiable) {
  const at::AutoGradMode mode(differentiable);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(device::to_device(runtime, input).clone().detach().requires_grad_(differentiable));
  }
  Result result{function(leaves), {}};
  if (!differentiable) return result;
  torch::autograd::backward({result.value}, {device::to_device(runtime, gradient)});
  for (const at::Tensor& leaf : leaves) result.gradients.push_back(leaf.grad());
  return result;
}

void compare(Scene& scene, const std::vector<at::Tensor>& inputs, const at::Tensor& gradient, const Function& function,
             bool differentiable = true) {
  const Result own = evaluate(scene.host, inputs, gradient, function, differentiable);
  device::use_kernel_paths(kPlain);
  const Result plain = evaluate(scene.host, inputs, gradient, function, differentiable);
  const Result there = evaluate(scene.runtime, inputs, gradient, function, differentiable);
  const auto check = [&](const Result& expected, double bound, const std::string& of) {
    require_close("the result against " + of, there.value, expected.value, bound);
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      require_close("gradient " + std::to_string(i) + " against " + of, there.gradients[i], expected.gradients[i],
                    bound);
    }
  };
  check(plain, kPlainBound, "plain operators on the host");
  check(own, kOwnBound, "the host's kernels");
}

void rms_norm(Scene& scene) {
  Numbers random;
  compare(scene, {random({7, 5, 48}), random({48})}, random({7, 5, 48}),
          [](const auto& x) { return nn::rms_norm(x[0], x[1], 1e-6); });
}

void linear(Scene& scene) {
  Numbers random;
  compare(scene, {random({9, 40}), random({24, 40}), random({24})}, random({9, 24}),
          [](const auto& x) { return nn::linear(x[0], x[1], x[2]); });
}

void rope(Scene& scene) {
  Numbers random;
  std::vector<float> frequencies;
  for (int i = 0; i < 8; ++i) frequencies.push_back(static_cast<float>(std::pow(10000.0, -i / 8.0)));
  std::vector<int64_t> positions = {0, 1, 2, 700, 5, 131071};
  at::Tensor at_rows = at::empty({6}, at::kLong);
  std::copy(positions.begin(), positions.end(), at_rows.mutable_data_ptr<int64_t>());
  const nn::RopeRows rows = nn::RopeTable(frequencies).rows(at_rows);
  compare(scene, {random({6, 3, 16})}, random({6, 3, 16}), [&](const auto& x) {
    return nn::apply_rope(x[0], {rows.cos.to(x[0].device()), rows.sin.to(x[0].device())});
  });
}

void causal_attention(Scene& scene) {
  for (const auto window : {std::optional<int64_t>(), std::optional<int64_t>(9)}) {
    Numbers random;
    compare(
        scene, {random({150, 4, 16}), random({160, 2, 16}), random({160, 2, 16})}, {},
        [&](const auto& x) { return nn::causal_attention(x[0], x[1], x[2], window); }, /*differentiable=*/false);
    device::use_kernel_paths({});
  }
}

// Two sequences; a block without context, blocks with equal prefixes, and a window.
void block_attention(Scene& scene) {
  const nn::BlockLayout layout{{0, 20, 33}, {0, 4, 6}, {0, 5, 5, 20, 3, 13}, 5};
  for (const auto window : {std::optional<int64_t>(), std::optional<int64_t>(6)}) {
    Numbers random;
    compare(scene,
            {random({30, 4, 16}), random({30, 2, 16}), random({30, 2, 16}), random({33, 2, 16}), random({33, 2, 16})},
            random({30, 4, 16}),
            [&](const auto& x) { return nn::block_attention(x[0], x[1], x[2], x[3], x[4], layout, 0.25, window); });
    device::use_kernel_paths({});
  }
}

// A vocabulary of more than one tile, rows that share Markov and teacher rows, labels outside of the draft vocabulary.
void vocab_loss(Scene& scene) {
  constexpr int64_t kRows = 19, kWidth = 16, kRank = 4, kVocabulary = 4500, kTeachers = 7, kMarkovs = 8;
  for (const bool reduced : {false, true}) {
    Numbers random;
    std::vector<int64_t> kept;
    if (reduced) {
      for (int64_t id = 2; id < kVocabulary; id += 3) kept.push_back(id);
    }
    const int64_t n = reduced ? static_cast<int64_t>(kept.size()) : kVocabulary;
    const at::Tensor hidden = random({kRows, kWidth}), head = random({n, kWidth}) * 0.3;
    const at::Tensor markov = random({kMarkovs, kRank}), markov_out = random({n, kRank}) * 0.3;
    const at::Tensor teacher = random({kTeachers, kWidth}), teacher_head = random({kVocabulary, kWidth}) * 0.3;
    const auto outputs = [&](const device::Runtime& runtime) {
      const auto there = [&](const at::Tensor& x) { return device::to_device(runtime, x); };
      nn::VocabLossInput in;
      in.hidden = there(hidden), in.head = there(head), in.markov = there(markov), in.markov_out = there(markov_out);
      in.teacher = there(teacher), in.teacher_head = there(teacher_head), in.kept_ids = kept;
      for (int64_t row = 0; row < kRows; ++row) {
        in.markov_row.push_back(row * 5 % kMarkovs), in.teacher_row.push_back(row * 3 % kTeachers);
        in.label.push_back(row % 6 == 4 ? -1 : row * 101 % n);
        in.ce_scale.push_back(0.1f + 0.01f * static_cast<float>(row));
        in.l1_scale.push_back(0.9f - 0.02f * static_cast<float>(row));
      }
      return nn::VocabLoss(1 << 20)(in);
    };
    const nn::VocabLossOutput own = outputs(scene.host);
    device::use_kernel_paths(kPlain);
    const nn::VocabLossOutput plain = outputs(scene.host), found = outputs(scene.runtime);
    device::use_kernel_paths({});
    const auto row = [](const std::vector<float>& values) {
      at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kFloat);
      std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<float>());
      return tensor;
    };
    const auto check = [&](const nn::VocabLossOutput& expected, double bound, const std::string& of) {
      require_close("cross-entropy against " + of, row(found.ce), row(expected.ce), bound);
      require_close("L1 distance against " + of, row(found.l1), row(expected.l1), bound);
      require(found.correct == expected.correct, "which rows are right, against " + of);
      require_close("gradient of hidden rows against " + of, found.d_hidden, expected.d_hidden, bound);
      require_close("gradient of Markov rows against " + of, found.d_markov, expected.d_markov, bound);
      require_close("gradient of the Markov matrix against " + of, found.d_markov_out, expected.d_markov_out, bound);
    };
    check(plain, kPlainBound, "plain operators on the host");
    check(own, kOwnBound, "the host's kernels");
  }
}

}  // namespace

std::vector<Check> operator_checks() {
  return {{"operators.rms_norm", "values and gradients as on the host", rms_norm},
          {"operators.linear", "values and gradients as on the host", linear},
          {"operators.rope", "values and gradients as on the host, up to position 131071", rope},
          {"operators.causal_attention", "with an older prefix, with and without a window", causal_attention},
          {"operators.block_attention", "mask structure with gradients, with and without a window", block_attention},
          {"operators.vocab_loss", "losses and gradients over a vocabulary of several tiles", vocab_loss}};
}

}  // namespace pacer::conformance
