// The loss of a language model's output head without the logits of a whole micro-batch.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace pacer::train {

// Sum of -log p(label) over logits [T, V]; labels [T] i64 in host memory.
at::Tensor label_loss(const at::Tensor& logits, const at::Tensor& labels);

// Of one part: 128 MiB in f32.
constexpr int64_t kMostLogits = int64_t{1} << 25;

// label_loss(hidden head^T, labels) for hidden [T, H], head [V, H], both f32, differentiable in them once. Of more
// than `most_logits` logits only so many exist at a time: their gradients are computed with the loss, so that the
// memory is that of one part and of the two gradients. The parts follow from the sizes alone.
at::Tensor head_loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& labels,
                     int64_t most_logits = kMostLogits);

}  // namespace pacer::train
