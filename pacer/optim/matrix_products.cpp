#include "pacer/optim/matrix_products.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/kernel_choice.h"
#include "pacer/optim/product_kernel.h"

namespace pacer::optim {

// alpha a b + beta c; b_turned: alpha a b^T + beta c.
struct MatrixProduct {
  const at::Tensor &a, &b;
  bool b_turned;
  double alpha;
  const at::Tensor& c;
  double beta;
  bool symmetric;

  int64_t columns() const { return b.size(b_turned ? 1 : 2); }
};

namespace {

using detail::kPanelColumns;
using detail::ProductArguments;
using detail::ProductKernel;

// Null: by the library.
const ProductKernel* kernel_for(at::ScalarType type) {
  static const bool allowed = nn::wished_kernels().empty() || nn::wished_kernels().starts_with("avx512");
  static const ProductKernel* f32 = detail::f32_product_kernel();
  static const ProductKernel* bf16 = detail::bf16_product_kernel();
  if (!allowed) return nullptr;
  return type == at::kFloat ? f32 : type == at::kBFloat16 ? bf16 : nullptr;
}

at::Tensor device_product(const MatrixProduct& p) {
  const at::Tensor b = p.b_turned ? p.b.transpose(1, 2) : p.b;
  return p.c.defined() ? at::baddbmm(p.c, p.a, b, p.beta, p.alpha) : at::bmm(p.a, b).mul_(p.alpha);
}

void library_product(const MatrixProduct& p, const at::Tensor& out) {
  const at::Tensor b = p.b_turned ? p.b.transpose(1, 2) : p.b;
  for (int64_t i = 0; i < p.a.size(0); ++i) {
    at::Tensor slot = out[i];
    if (p.c.defined()) {
      at::addmm_out(slot, p.c[i], p.a[i], b[i], p.beta, p.alpha);
    } else {
      at::mm_out(slot, p.a[i], b[i]);
      if (p.alpha != 1) slot.mul_(p.alpha);
    }
  }
}

// A panel of the right factor, kept by the thread from product to product.
void* workspace(size_t bytes) {
  struct Release {
    void operator()(void* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<void, Release> memory;
  thread_local size_t size = 0;
  if (size < bytes) {
    size = (bytes + 4095) / 4096 * 4096;
    memory.reset(std::aligned_alloc(64, size));
    if (memory == nullptr) throw Error(ErrorKind::resources, "no memory for a panel of " + std::to_string(size) + " B");
  }
  return memory.get();
}

void multiply(const ProductKernel& kernel, const ProductArguments& p, int64_t element_bytes) {
  const size_t bytes = static_cast<size_t>((p.depth * element_bytes + 3) / 4 * 4 * kPanelColumns);
  const int64_t panels = (p.columns + kPanelColumns - 1) / kPanelColumns;
  // In a triangle the first panel has the least to do: the n-th and the n-th from the end are one piece of work.
  at::parallel_for(0, (panels + 1) / 2, 1, [&](int64_t begin, int64_t end) {
    void* panel = workspace(bytes);
    for (int64_t i = begin; i < end; ++i) {
      kernel.panel(p, i, panel);
      if (panels - 1 - i != i) kernel.panel(p, panels - 1 - i, panel);
    }
  });
  if (!p.symmetric) return;
  const int64_t blocks = (p.columns + 15) / 16;
  at::parallel_for(0, blocks, 16,
                   [&](int64_t begin, int64_t end) { kernel.mirror(p.out, p.out_stride, p.columns, begin, end); });
}

void own_product(const ProductKernel& kernel, const MatrixProduct& p, const at::Tensor& out) {
  const int64_t batch = p.a.size(0), rows = p.a.size(1), depth = p.a.size(2), columns = p.columns();
  const auto item = static_cast<int64_t>(p.a.element_size());
  const auto place = [&](const at::Tensor& t, int64_t i) {
    return static_cast<char*>(const_cast<void*>(t.const_data_ptr())) + i * t.size(1) * t.size(2) * item;
  };
  const auto one = [&](int64_t i) {
    multiply(kernel,
             {.a = place(p.a, i),
              .a_stride = depth,
              .b = place(p.b, i),
              .b_stride = p.b.size(2),
              .b_turned = p.b_turned,
              .c = p.c.defined() ? place(p.c, i) : nullptr,
              .c_stride = columns,
              .out = place(out, i),
              .out_stride = columns,
              .rows = rows,
              .columns = columns,
              .depth = depth,
              .alpha = static_cast<float>(p.alpha),
              .beta = static_cast<float>(p.beta),
              .symmetric = p.symmetric},
             item);
  };
  if (batch >= at::get_num_threads()) {  // whole matrices side by side; products within a thread stay in it
    at::parallel_for(0, batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) one(i);
    });
  } else {
    for (int64_t i = 0; i < batch; ++i) one(i);
  }
}

}  // namespace

Products::Products(at::ScalarType storage, const at::Device& device)
    : f16_on_cpu_(storage == at::kHalf && device::in_host_memory(device)), type_(f16_on_cpu_ ? at::kFloat : storage) {}

at::Tensor Products::result(at::IntArrayRef sizes, const at::TensorOptions& options) const {
  for (const at::Tensor& earlier : results_) {
    if (earlier.use_count() == 1 && earlier.sizes() == sizes) return earlier;
  }
  results_.push_back(at::empty(sizes, options));
  return results_.back();
}

at::Tensor Products::compute(const MatrixProduct& p) const {
  if (!device::in_host_memory(p.a)) return device_product(p);
  at::Tensor out = result({p.a.size(0), p.a.size(1), p.columns()}, p.a.options());
  const ProductKernel* kernel = device::own_kernels(p.a) ? kernel_for(p.a.scalar_type()) : nullptr;
  if (kernel == nullptr) {
    library_product(p, out);
  } else {
    own_product(*kernel, p, out);
  }
  return rounded(out);
}

at::Tensor Products::rounded(const at::Tensor& values) const {
  return f16_on_cpu_ ? values.to(at::kHalf).to(at::kFloat) : values;
}

at::Tensor Products::store(const at::Tensor& values) const { return rounded(values.to(type_)); }

at::Tensor Products::gram(const at::Tensor& a) const {
  return compute({a, a, /*b_turned=*/true, 1, {}, 0, /*symmetric=*/true});
}

at::Tensor Products::symmetric(const at::Tensor& a, const at::Tensor& b, double alpha, const at::Tensor& c,
                               double beta) const {
  return compute({a, b, /*b_turned=*/false, alpha, c, beta, /*symmetric=*/true});
}

at::Tensor Products::product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta) const {
  return compute({a, b, /*b_turned=*/false, 1, c, beta, /*symmetric=*/false});
}

at::Tensor Products::plus_diagonal(const at::Tensor& a, double diagonal) const {
  at::Tensor sum = a.clone();
  // Added in f32: the library would round the number itself to the element type, and with it the polynomial.
  sum.diagonal(0, 1, 2).copy_(a.diagonal(0, 1, 2).to(at::kFloat) + diagonal);
  return rounded(sum);
}

}  // namespace pacer::optim
