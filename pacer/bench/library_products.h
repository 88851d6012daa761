// x w^T by every way that the library has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::bench {

struct Call {
  std::string name;
  std::function<void()> run;
};

// One call per way, the same ways in the same order for every size. In f32, at::linear goes to MKL, which some
// processors run at half of what oneDNN reaches. x [m, k], weight [n, k].
std::vector<Call> library_products(const at::Tensor& x, const at::Tensor& weight);

}  // namespace pacer::bench
