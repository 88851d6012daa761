// Attention of block drafts in training: forward, and forward with backward.
#include <limits>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/checked.h"
#include "pacer/nn/block_attention.h"

namespace pacer::bench {
namespace {

constexpr int64_t kHeads = 9, kKvHeads = 3, kWidth = 64, kSlots = 7;
const double kScale = 1.0 / std::sqrt(static_cast<double>(kWidth));

// One sequence with anchors spread over its second half.
struct Case {
  Case(int64_t blocks, int64_t length, at::ScalarType dtype) {
    layout.block_size = kSlots;
    layout.context_starts = {0, length};
    layout.block_starts = {0, blocks};
    for (int64_t b = 0; b < blocks; ++b) layout.prefix.push_back(length / 2 + b * (length / 2) / blocks);
    const auto make = [&](int64_t rows, int64_t heads) {
      return at::randn({rows, heads, kWidth}).to(dtype).detach().requires_grad_(true);
    };
    q = make(blocks * kSlots, kHeads);
    k_block = make(blocks * kSlots, kKvHeads), v_block = make(blocks * kSlots, kKvHeads);
    k_context = make(length, kKvHeads), v_context = make(length, kKvHeads);
  }

  at::Tensor run() const { return nn::block_attention(q, k_block, v_block, k_context, v_context, layout, kScale); }

  // With a mask of every slot against every key, in f64.
  at::Tensor reference() const {
    const int64_t length = k_context.size(0), rows = q.size(0);
    const at::Tensor mask = at::full({rows, length + rows}, -std::numeric_limits<double>::infinity(), at::kDouble);
    for (int64_t b = 0; b < layout.blocks(); ++b) {
      const at::Tensor slots = mask.slice(0, b * kSlots, (b + 1) * kSlots);
      slots.slice(1, 0, layout.prefix[static_cast<size_t>(b)]).fill_(0.0);
      slots.slice(1, length + b * kSlots, length + (b + 1) * kSlots).fill_(0.0);
    }
    const auto keys = [](const at::Tensor& context, const at::Tensor& block) {
      const at::Tensor all = at::cat({context, block}).to(at::kDouble);
      return at::repeat_interleave(all, kHeads / kKvHeads, 1).transpose(0, 1);
    };
    const at::Tensor scores =
        at::matmul(q.to(at::kDouble).transpose(0, 1), keys(k_context, k_block).transpose(1, 2)) * kScale + mask;
    return at::matmul(at::softmax(scores, -1), keys(v_context, v_block)).transpose(0, 1);
  }

  double flops() const {
    double keys = 0;
    for (const int64_t prefix : layout.prefix) keys += static_cast<double>((prefix + kSlots) * kSlots);
    return 4.0 * keys * static_cast<double>(kHeads * kWidth);
  }

  nn::BlockLayout layout;
  at::Tensor q, k_block, v_block, k_context, v_context;
};

std::vector<at::Tensor> gradients(const Case& one, const at::Tensor& out, const at::Tensor& upstream) {
  return torch::autograd::grad({out}, {one.q, one.k_block, one.v_block, one.k_context, one.v_context}, {upstream});
}

void check() {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Case one(12, 96, dtype);
    // bf16: what is read is exact, results are rounded to eight bits.
    const double bound = dtype == at::kFloat ? 1e-5 : 5e-3;
    const at::Tensor out = one.run(), expected = one.reference();
    require_close("block_attention", out, expected, bound);
    const at::Tensor upstream = at::randn_like(out.detach());
    const std::vector<at::Tensor> found = gradients(one, out, upstream),
                                  wanted = gradients(one, expected, upstream.to(at::kDouble));
    for (size_t i = 0; i < found.size(); ++i)
      require_close("a gradient of block_attention", found[i], wanted[i], 2 * bound);
  }
}

void add() {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t blocks : {64, 447}) {
      const std::string name = std::string(dtype == at::kFloat ? "f32" : "bf16") + "/blocks:" + std::to_string(blocks);
      benchmark::RegisterBenchmark(("block_attention/forward/" + name).c_str(), [=](benchmark::State& state) {
        const Case one(blocks, 512, dtype);
        for (auto unused : state) {
          static_cast<void>(unused);
          benchmark::DoNotOptimize(one.run());
        }
        set_rate(state, "GFLOP", one.flops());
      })->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark(("block_attention/both/" + name).c_str(), [=](benchmark::State& state) {
        const Case one(blocks, 512, dtype);
        const at::Tensor upstream = at::randn_like(one.q.detach());
        for (auto unused : state) {
          static_cast<void>(unused);
          benchmark::DoNotOptimize(gradients(one, one.run(), upstream));
        }
        set_rate(state, "GFLOP", 3.0 * one.flops());
      })->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace pacer::bench

int main(int argc, char** argv) {
  using namespace pacer::bench;
  return run_checked(argc, argv, [] { check(); }, [] { add(); });
}
