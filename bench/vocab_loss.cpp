// The two halves of the loss over a vocabulary: products with f32 results, and passes over rows of logits.
#include <utility>
#include <vector>

#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/softmax.h>

#include "bench/checked.h"
#include "pacer/nn/vocab_loss_product.h"
#include "pacer/nn/vocab_loss_rows.h"

namespace pacer::bench {
namespace {

using nn::detail::DraftRow;
using nn::detail::DraftRowTerms;
using nn::detail::VocabRowKernels;

std::vector<std::pair<std::string, const VocabRowKernels*>> row_kernels() {
  std::vector<std::pair<std::string, const VocabRowKernels*>> found = {
      {"plain", &nn::detail::vocab_row_kernels_plain()}};
  if (const auto* avx2 = nn::detail::vocab_row_kernels_avx2()) found.emplace_back("avx2", avx2);
  if (const auto* avx512 = nn::detail::vocab_row_kernels_avx512()) found.emplace_back("avx512", avx512);
  return found;
}

constexpr int64_t kLabel = 17;
constexpr float kCeScale = 0.3f, kL1Scale = 0.7f;

DraftRowTerms draft_row(const VocabRowKernels& kernels, const at::Tensor& logits, const at::Tensor& teacher) {
  DraftRow row{};
  row.logits = logits.mutable_data_ptr<float>();
  row.teacher = teacher.const_data_ptr<float>();
  row.n = logits.numel();
  row.label = kLabel;
  row.ce_scale = kCeScale, row.l1_scale = kL1Scale;
  row.gradient = true;
  return kernels.draft(row);
}

void require_near(const std::string& what, double found, double expected) {
  if (!(std::abs(found - expected) <= 1e-5 * std::abs(expected))) {
    throw std::runtime_error(what + " is " + std::to_string(found) + ", its reference " + std::to_string(expected));
  }
}

void check_rows() {
  const at::Tensor logits = at::randn({5003}), teacher = at::softmax(at::randn({5003}), -1);
  const at::Tensor log_q = at::log_softmax(logits.to(at::kDouble), -1), q = log_q.exp();
  const at::Tensor p = teacher.to(at::kDouble), s = at::sign(q - p);
  at::Tensor ce = q.clone();
  ce[kLabel] -= 1.0;
  const at::Tensor gradient = kCeScale * ce + kL1Scale * q * (s - (s * q).sum());
  for (const auto& [name, kernels] : row_kernels()) {
    const at::Tensor row = logits.clone();
    const DraftRowTerms terms = draft_row(*kernels, row, teacher);
    require_near("cross-entropy of " + name, terms.ce, -log_q[kLabel].item<double>());
    require_near("L1 of " + name, terms.l1, at::abs(q - p).sum().item<double>());
    require_close("gradient of " + name, row, gradient, 1e-5);
  }
}

void check_products() {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = at::randn({37, 576}).to(dtype), w = at::randn({1000, 576}).to(dtype);
    const at::Tensor out = at::empty({37, 1000});
    nn::product_f32(out, a, w);
    require_close(std::string("product_f32 ") + toString(dtype), out,
                  at::matmul(a.to(at::kDouble), w.to(at::kDouble).t()), 1e-6);
  }
}

void add() {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t columns : {2048, 8192, 49152}) {
      const std::string name = std::string("product_f32/") + (dtype == at::kFloat ? "f32" : "bf16") + "/448x" +
                               std::to_string(columns) + "x576";
      benchmark::RegisterBenchmark(name.c_str(), [dtype, columns](benchmark::State& state) {
        const at::Tensor a = at::randn({448, 576}).to(dtype), w = at::randn({columns, 576}).to(dtype);
        const at::Tensor out = at::empty({448, columns});
        for (auto unused : state) {
          static_cast<void>(unused);
          nn::product_f32(out, a, w);
          benchmark::DoNotOptimize(out);
        }
        set_rate(state, "GFLOP", 2.0 * 448.0 * 576.0 * static_cast<double>(columns));
      })->Unit(benchmark::kMillisecond);
    }
  }
  for (const auto& [name, kernels] : row_kernels()) {
    benchmark::RegisterBenchmark(
        ("draft_row/" + name + "/49152").c_str(), [kernels = kernels](benchmark::State& state) {
          // The gradient takes the place of the logits; the next pass reads it as logits and does the same work.
          const at::Tensor logits = at::randn({49152}), teacher = at::softmax(at::randn({49152}), -1);
          for (auto unused : state) {
            static_cast<void>(unused);
            benchmark::DoNotOptimize(draft_row(*kernels, logits, teacher));
          }
          set_rate(state, "G elements", 49152.0);
        });
  }
}

}  // namespace
}  // namespace pacer::bench

int main(int argc, char** argv) {
  using namespace pacer::bench;
  return run_checked(argc, argv, [] { check_rows(), check_products(); }, [] { add(); });
}
