#include "pacer/train/head_loss.h"

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/sin.h>

#include "tests/support/tensors.h"

namespace pacer::train {
namespace {

constexpr int64_t kRows = 11, kHidden = 6, kVocabulary = 20;

struct Losses {
  at::Tensor loss, by_hidden, by_head;
};

at::Tensor values(int64_t rows, double phase) {
  return at::sin(at::arange(rows * kHidden, at::kFloat) * 1.7 + phase).view({rows, kHidden});
}
at::Tensor labels() { return at::remainder(at::arange(kRows, at::kLong) * 7, kVocabulary); }

// most_logits: 0 for the logits whole, by label_loss() and the library's product.
Losses losses(int64_t most_logits, double outer) {
  const at::Tensor hidden = values(kRows, 1).requires_grad_(), head = values(kVocabulary, 2).requires_grad_();
  const at::Tensor loss = most_logits == 0 ? label_loss(at::matmul(hidden, head.t()), labels())
                                           : head_loss(hidden, head, labels(), most_logits);
  (loss * outer).backward();
  return {loss.detach(), hidden.grad(), head.grad()};
}

TEST(HeadLoss, InPartsIsTheLossOfAllLogits) {
  const Losses whole = losses(0, 0.25);
  for (const int64_t rows_at_once : {1, 3, 10, 11, 100}) {
    SCOPED_TRACE(rows_at_once);
    const Losses parts = losses(rows_at_once * kVocabulary, 0.25);
    EXPECT_TRUE(test::close_l2(parts.loss, whole.loss, 1e-6));
    EXPECT_TRUE(test::close_l2(parts.by_hidden, whole.by_hidden, 1e-6));
    EXPECT_TRUE(test::close_l2(parts.by_head, whole.by_head, 1e-6));
  }
}

TEST(HeadLoss, TakesARowAtATimeWhereNotEvenOneFits) {
  EXPECT_TRUE(test::close_l2(losses(1, 1).loss, losses(0, 1).loss, 1e-6));
}

TEST(HeadLoss, WithoutGradientsIsTheSame) {
  const at::Tensor expected = losses(0, 1).loss;
  const at::NoGradGuard no_gradients;
  const at::Tensor found = head_loss(values(kRows, 1), values(kVocabulary, 2), labels(), 4 * kVocabulary);
  EXPECT_TRUE(test::close_l2(found, expected, 1e-6));
}

}  // namespace
}  // namespace pacer::train
