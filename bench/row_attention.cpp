// Attention of a few query rows over the cache of their sequence.
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/softmax.h>

#include "bench/checked.h"
#include "pacer/nn/row_attention.h"

namespace pacer::bench {
namespace {

constexpr int64_t kHeads = 9, kKvHeads = 3, kWidth = 64;

template <typename T>
constexpr at::ScalarType kDtype = sizeof(T) == 2 ? at::kBFloat16 : at::kFloat;
template <typename T>
constexpr const char* kDtypeName = sizeof(T) == 2 ? "bf16" : "f32";

template <typename T>
struct Case {
  Case(const nn::RowKernels<T>& kernels_, int64_t rows, int64_t length)
      : kernels(kernels_),
        q(at::randn({rows, kHeads, kWidth}).to(kDtype<T>)),
        k(at::randn({length, kKvHeads, kWidth}).to(kDtype<T>)),
        v(at::randn({length, kKvHeads, kWidth}).to(kDtype<T>)),
        out(at::empty_like(q)),
        cache(kKvHeads, kWidth, kDtype<T>, length, kernels_.lanes) {
    cache.write(0, k, v);
  }

  // The rows are the last ones of the sequence.
  void run() {
    const auto* query = static_cast<const T*>(q.const_data_ptr());
    for (int64_t head = 0; head < kKvHeads; ++head) {
      nn::row_attention(query, q.size(0), kHeads, cache, head, k.size(0) - q.size(0), k.size(0),
                        static_cast<T*>(out.mutable_data_ptr()), kernels);
    }
  }

  // Dense and masked, in f64; in bf16 scores and probabilities are rounded where the kernel's contract rounds them.
  at::Tensor reference() const {
    const auto stored = [](const at::Tensor& x) { return x.to(kDtype<T>).to(at::kDouble); };
    const auto heads_first = [](const at::Tensor& x, int64_t repeats) {
      return at::repeat_interleave(x.to(at::kDouble).transpose(0, 1), repeats, 0);
    };
    const int64_t length = k.size(0), group = kHeads / kKvHeads;
    const at::Tensor hidden = at::arange(length).unsqueeze(0) > at::arange(length - q.size(0), length).unsqueeze(1);
    const at::Tensor scores = stored(at::matmul(heads_first(q, 1), heads_first(k, group).transpose(1, 2)));
    const at::Tensor masked = stored(scores * (1.0 / std::sqrt(static_cast<double>(kWidth))))
                                  .masked_fill(hidden, -std::numeric_limits<double>::infinity());
    return at::matmul(stored(at::softmax(masked, -1)), heads_first(v, group)).transpose(0, 1);
  }

  const nn::RowKernels<T>& kernels;
  at::Tensor q, k, v, out;
  nn::KeyValuePanels cache;
};

template <typename T>
void check() {
  for (const nn::RowKernels<T>* kernels : nn::available_row_kernels<T>()) {
    for (const int64_t rows : {1, 8}) {
      Case<T> one(*kernels, rows, 300);
      one.run();
      require_close(std::string("row_attention ") + kernels->name, one.out, one.reference(),
                    sizeof(T) == 2 ? 4e-3 : 1e-5);
    }
  }
}

template <typename T>
void add() {
  for (const nn::RowKernels<T>* kernels : nn::available_row_kernels<T>()) {
    for (const int64_t length : {512, 2048}) {
      for (const int64_t rows : {1, 8, 16}) {
        const std::string name = std::string("row_attention/") + kDtypeName<T> + "/" + kernels->name +
                                 "/length:" + std::to_string(length) + "/rows:" + std::to_string(rows);
        benchmark::RegisterBenchmark(name.c_str(), [kernels, rows, length](benchmark::State& state) {
          Case<T> one(*kernels, rows, length);
          for (auto unused : state) {
            static_cast<void>(unused);
            one.run();
            benchmark::DoNotOptimize(one.out);
          }
          set_rate(state, "GB", static_cast<double>(one.cache.bytes()));
          set_rate(state, "GFLOP", 4.0 * static_cast<double>(rows * length * kHeads * kWidth));
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
