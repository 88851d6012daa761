#include "pacer/optim/matrix_products.h"
#include "pacer/device/kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace pacer::optim {
namespace {

// alpha a b + beta c
at::Tensor library_product(const at::Tensor& a, const at::Tensor& b, double alpha, const at::Tensor& c, double beta) {
  if (!device::in_host_memory(a)) return c.defined() ? at::baddbmm(c, a, b, beta, alpha) : at::bmm(a, b).mul_(alpha);
  at::Tensor out = at::empty({a.size(0), a.size(1), b.size(2)}, a.options());
  for (int64_t i = 0; i < a.size(0); ++i) {
    at::Tensor slot = out[i];
    if (c.defined()) {
      at::addmm_out(slot, c[i], a[i], b[i], beta, alpha);
    } else {
      at::mm_out(slot, a[i], b[i]);
      if (alpha != 1) slot.mul_(alpha);
    }
  }
  return out;
}

}  // namespace

Products::Products(at::ScalarType storage, const at::Device& device)
    : f16_on_cpu_(storage == at::kHalf && device::in_host_memory(device)), type_(f16_on_cpu_ ? at::kFloat : storage) {}

at::Tensor Products::rounded(const at::Tensor& values) const {
  return f16_on_cpu_ ? values.to(at::kHalf).to(at::kFloat) : values;
}

at::Tensor Products::store(const at::Tensor& values) const { return rounded(values.to(type_)); }

at::Tensor Products::gram(const at::Tensor& a) const {
  return rounded(library_product(a, a.transpose(1, 2), 1, {}, 0));
}

at::Tensor Products::symmetric(const at::Tensor& a, const at::Tensor& b, double alpha, const at::Tensor& c,
                               double beta) const {
  return rounded(library_product(a, b, alpha, c, beta));
}

at::Tensor Products::product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta) const {
  return rounded(library_product(a, b, 1, c, beta));
}

at::Tensor Products::plus_diagonal(const at::Tensor& a, double diagonal) const {
  at::Tensor sum = a.clone();
  sum.diagonal(0, 1, 2).add_(diagonal);
  return rounded(sum);
}

}  // namespace pacer::optim
