#include "pacer/train/head_loss.h"

#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pacer/device/device_memory.h"
#include "pacer/device/indices.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/linear.h"

namespace pacer::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Calls each(begin, end) for parts of the rows, each with at most `most` logits, and adds what they return.
template <typename Each>
at::Tensor sum_of_parts(int64_t rows, int64_t columns, int64_t most, const Each& each) {
  const int64_t part = std::max<int64_t>(1, most / columns);
  at::Tensor sum;
  for (int64_t begin = 0; begin < rows; begin += part) {
    const at::Tensor loss = each(begin, std::min(begin + part, rows));
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

// The gradients are computed with the loss, part by part, so that no logits outlive their part.
class HeadLoss : public torch::autograd::Function<HeadLoss> {
 public:
  static Variable forward(AutogradContext* context, const Variable& hidden, const Variable& head,
                          const at::Tensor& labels, int64_t most_logits) {
    std::vector<at::Tensor> by_hidden;
    at::Tensor by_head = at::zeros_like(head);
    const at::Tensor sum = sum_of_parts(hidden.size(0), head.size(0), most_logits, [&](int64_t begin, int64_t end) {
      const at::AutoGradMode with_graph(true);
      const at::Tensor rows = hidden.detach().slice(0, begin, end).requires_grad_();
      const at::Tensor weight = head.detach().requires_grad_();
      const at::Tensor loss = label_loss(nn::linear(rows, weight), labels.slice(0, begin, end));
      const variable_list gradients = torch::autograd::grad({loss}, {rows, weight});
      by_hidden.push_back(gradients[0]);
      by_head.add_(gradients[1]);
      return loss.detach();
    });
    context->save_for_backward({at::cat(by_hidden, 0), by_head});
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    return {saved[0] * outer[0], saved[1] * outer[0], Variable(), Variable()};
  }
};

}  // namespace

at::Tensor label_loss(const at::Tensor& logits, const at::Tensor& labels) {
  if (device::in_host_memory(logits)) return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum);
  // Devices reduce a row in a buffer of limited size, and may take no int64 indices.
  const int64_t rows = logits.size(0), columns = logits.size(1), most = device::most_reduced_columns(logits.device()),
                tile_columns = most > 0 ? most : columns;
  at::Tensor log_sum;
  for (int64_t begin = 0; begin < columns; begin += tile_columns) {
    const at::Tensor tile = at::logsumexp(logits.slice(1, begin, std::min(begin + tile_columns, columns)), {1});
    log_sum = log_sum.defined() ? at::logaddexp(log_sum, tile) : tile;
  }
  const at::Tensor places = device::as_indices(labels + at::arange(rows) * columns, logits.device());
  return (log_sum - logits.reshape({-1}).index_select(0, places)).sum();
}

at::Tensor head_loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& labels, int64_t most_logits) {
  const int64_t rows = hidden.size(0), columns = head.size(0);
  if (rows * columns <= most_logits) return label_loss(nn::linear(hidden, head), labels);
  if (at::GradMode::is_enabled()) return HeadLoss::apply(hidden, head, labels, most_logits);
  return sum_of_parts(rows, columns, most_logits, [&](int64_t begin, int64_t end) {
    return label_loss(nn::linear(hidden.slice(0, begin, end), head), labels.slice(0, begin, end));
  });
}

}  // namespace pacer::train
