// Linear layers of decoding: a few rows through weights that are streamed once.
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>

#include "bench/checked.h"
#include "pacer/nn/row_linear.h"

namespace pacer::bench {
namespace {

struct Shape {
  int64_t inputs, outputs;
};
// The last one is larger than what a core gets of the last cache level: decoding reads every weight from memory.
constexpr Shape kShapes[] = {{576, 1536}, {1536, 576}, {576, 49152}, {576, 393216}};

template <typename T>
constexpr at::ScalarType kDtype = sizeof(T) == 2 ? at::kBFloat16 : at::kFloat;
template <typename T>
constexpr const char* kDtypeName = sizeof(T) == 2 ? "bf16" : "f32";

template <typename T>
void check() {
  for (const nn::RowKernels<T>* kernels : nn::available_row_kernels<T>()) {
    for (const Shape& shape : {Shape{576, 1536}, Shape{50, 33}}) {
      const at::Tensor weight = at::randn({shape.outputs, shape.inputs}).to(kDtype<T>);
      nn::PanelArena arena;
      const nn::RowLinear<T> linear({weight}, arena, *kernels);
      for (const int64_t rows : {1, 5, 8, 16}) {
        const at::Tensor x = at::randn({rows, shape.inputs}).to(kDtype<T>);
        // Products are exact or f32, sums are f32: only the order of additions differs.
        require_close(std::string("row_product ") + kernels->name, linear(x),
                      at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t()), 1e-6);
      }
    }
  }
}

template <typename T>
void add() {
  for (const nn::RowKernels<T>* kernels : nn::available_row_kernels<T>()) {
    for (const Shape& shape : kShapes) {
      for (const int64_t rows : {1, 2, 4, 8, 16}) {
        const std::string name = std::string("row_product/") + kDtypeName<T> + "/" + kernels->name + "/" +
                                 std::to_string(shape.inputs) + "x" + std::to_string(shape.outputs) + "/" +
                                 std::to_string(rows);
        benchmark::RegisterBenchmark(name.c_str(), [kernels, shape, rows](benchmark::State& state) {
          nn::PanelArena arena;
          const nn::RowLinear<T> linear({at::randn({shape.outputs, shape.inputs}).to(kDtype<T>)}, arena, *kernels);
          const at::Tensor x = at::randn({rows, shape.inputs}).to(kDtype<T>);
          for (auto unused : state) {
            static_cast<void>(unused);
            benchmark::DoNotOptimize(linear(x));
          }
          set_rate(state, "GB", static_cast<double>(linear.bytes()));
          set_rate(state, "GFLOP", 2.0 * static_cast<double>(rows * shape.inputs * shape.outputs));
        });
      }
    }
  }
}

}  // namespace
}  // namespace pacer::bench

int main(int argc, char** argv) {
  using namespace pacer::bench;
  return run_checked(argc, argv, [] { check<float>(), check<uint16_t>(); }, [] { add<float>(), add<uint16_t>(); });
}
