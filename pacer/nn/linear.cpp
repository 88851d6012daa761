#include "pacer/nn/linear.h"

#include <string>

#include <ATen/ops/linear.h>

#include "pacer/base/error.h"

namespace pacer::nn {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (weight.dim() != 2 || x.dim() < 1 || x.size(-1) != weight.size(1) ||
      (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0)))) {
    throw Error(ErrorKind::format,
                "linear: rows of width " + std::to_string(x.dim() < 1 ? 0 : x.size(-1)) + ", weight " +
                    c10::str(weight.sizes()) + (bias.defined() ? ", bias " + c10::str(bias.sizes()) : std::string()),
                "the checkpoint and its config.json disagree about a size");
  }
  return at::linear(x, weight, bias);
}

}  // namespace pacer::nn
