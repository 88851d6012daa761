#include "pacer/conformance/checks.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/norm.h>

#include "pacer/device/device_memory.h"

namespace pacer::conformance {

std::vector<Check> all_checks() {
  std::vector<Check> all;
  for (const auto& part : {runtime_checks(), operator_checks(), model_checks(), training_checks()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw Failed(what);
}

void require_close(const std::string& what, const at::Tensor& a, const at::Tensor& b, double bound) {
  require(a.sizes() == b.sizes(), what + ": shape " + c10::str(a.sizes()) + ", expected " + c10::str(b.sizes()));
  const at::Tensor found = device::to_host(a.detach()).to(at::kDouble);
  const at::Tensor expected = device::to_host(b.detach()).to(at::kDouble);
  const double off = (found - expected).norm().item<double>(), size = expected.norm().item<double>();
  // Nothing to compare with: then only nothing is right.
  const double error = size > 0 ? off / size : off;
  require(std::isfinite(error) && error <= bound,
          what + ": relative difference " + std::to_string(error) + ", allowed " + std::to_string(bound));
}

void require_equal(const std::string& what, const at::Tensor& a, const at::Tensor& b) {
  require(a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type(), what + ": another shape or dtype");
  require(at::equal(device::to_host(a), device::to_host(b)), what + ": not the same bits");
}

}  // namespace pacer::conformance
