// The two halves of the loss over a vocabulary: products with f32 results, and passes over rows of logits.
#include <functional>
#include <string>
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

struct Way {
  const char* name;
  at::ScalarType dtype;
  nn::Bf16Products bf16;
};

constexpr Way kWays[] = {{"f32", at::kFloat, nn::Bf16Products::widened},
                         {"bf16-widened", at::kBFloat16, nn::Bf16Products::widened},
                         {"bf16-dot", at::kBFloat16, nn::Bf16Products::dot}};

void check_products() {
  for (const Way& way : kWays) {
    const at::Tensor a = at::randn({37, 576}).to(way.dtype), w = at::randn({1000, 576}).to(way.dtype);
    const at::Tensor out = at::empty({37, 1000});
    nn::product_f32(out, a, w, /*accumulate=*/false, way.bf16);
    require_close(std::string("product_f32 ") + way.name, out, at::matmul(a.to(at::kDouble), w.to(at::kDouble).t()),
                  1e-6);
    const at::Tensor g = at::randn({37, 1000}).to(way.dtype), back = at::empty({37, 576});
    nn::back_product_f32(back, g, w, way.bf16);
    require_close(std::string("back_product_f32 ") + way.name, back, at::matmul(g.to(at::kDouble), w.to(at::kDouble)),
                  1e-6);
  }
}

using Product = std::function<void(const at::Tensor& states, const at::Tensor& logits, const at::Tensor& gradient,
                                   const at::Tensor& head)>;

void add_product(const std::string& name, int64_t rows, int64_t columns, int64_t width, const Product& product,
                 at::ScalarType dtype) {
  const std::string shape = std::to_string(rows) + "x" + std::to_string(columns) + "x" + std::to_string(width);
  benchmark::RegisterBenchmark((name + "/" + shape).c_str(), [=](benchmark::State& state) {
    const at::Tensor states = at::randn({rows, width}).to(dtype), head = at::randn({columns, width}).to(dtype);
    const at::Tensor logits = at::empty({rows, columns});
    // As in the loss, a gradient row in bf16 lies at the start of its f32 row.
    const at::Tensor gradient = logits.view(dtype).slice(1, 0, columns);
    gradient.copy_(at::randn({rows, columns}));
    for (auto unused : state) {
      static_cast<void>(unused);
      product(states, logits, gradient, head);
    }
    set_rate(state, "GFLOP", 2.0 * static_cast<double>(rows * width * columns));
  })->Unit(benchmark::kMillisecond);
}

void add() {
  for (const Way& way : kWays) {
    // Bands of the two models of dspark_train: the larger vocabulary leaves room for fewer rows.
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{256, 576}, {96, 1024}}) {
      const nn::Bf16Products bf16 = way.bf16;
      add_product(
          std::string("product_f32/") + way.name, rows, 49152, width,
          [bf16](const at::Tensor& states, const at::Tensor& logits, const at::Tensor&, const at::Tensor& head) {
            nn::product_f32(logits, states, head, /*accumulate=*/false, bf16);
          },
          way.dtype);
      add_product(
          std::string("back_product_f32/") + way.name, rows, 49152, width,
          [bf16](const at::Tensor& states, const at::Tensor&, const at::Tensor& gradient, const at::Tensor& head) {
            nn::back_product_f32(at::empty(states.sizes(), at::kFloat), gradient, head, bf16);
          },
          way.dtype);
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
