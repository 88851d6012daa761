#include "pacer/nn/vocab_loss.h"

#include <gtest/gtest.h>
#include <algorithm>

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/base/error.h"
#include "pacer/base/random.h"
#include "pacer/nn/vocab_loss_product.h"
#include "pacer/nn/vocab_loss_rows.h"
#include "tests/support/kernels.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

struct Sizes {
  int64_t rows = 23, width = 24, rank = 6, vocabulary = 5000, teachers = 9;
  std::vector<int64_t> kept_ids;
};

std::vector<int64_t> every_third(int64_t vocabulary) {
  std::vector<int64_t> ids;
  for (int64_t id = 1; id < vocabulary; id += 3) ids.push_back(id);
  return ids;
}

VocabLossInput random_input(const Sizes& s, at::ScalarType dtype) {
  const int64_t n = s.kept_ids.empty() ? s.vocabulary : static_cast<int64_t>(s.kept_ids.size());
  const RandomStream random(7, Purpose::test);
  VocabLossInput in;
  in.hidden = at::randn({s.rows, s.width}).to(dtype);
  in.head = (at::randn({n, s.width}) * 0.4).to(dtype);
  in.markov = at::randn({s.rows, s.rank}).to(dtype);
  in.markov_out = (at::randn({n, s.rank}) * 0.3).to(dtype);
  in.teacher = at::randn({s.teachers, s.width}).to(dtype);
  in.teacher_head = (at::randn({s.vocabulary, s.width}) * 0.4).to(dtype);
  in.kept_ids = s.kept_ids;
  for (int64_t r = 0; r < s.rows; ++r) {
    const auto i = static_cast<uint64_t>(r);
    in.teacher_row.push_back(static_cast<int64_t>(random.below(4 * i, static_cast<uint64_t>(s.teachers))));
    in.label.push_back(r % 5 == 3 ? -1 : static_cast<int64_t>(random.below(4 * i + 1, static_cast<uint64_t>(n))));
    in.ce_scale.push_back(static_cast<float>(random.uniform(4 * i + 2)));
    in.l1_scale.push_back(static_cast<float>(random.uniform(4 * i + 3)));
  }
  return in;
}

at::Tensor ids_tensor(const std::vector<int64_t>& ids) {
  return at::from_blob(const_cast<int64_t*>(ids.data()), {static_cast<int64_t>(ids.size())}, at::kLong).clone();
}
at::Tensor floats(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}, at::kFloat).clone();
}

struct Naive {
  at::Tensor ce, l1, d_hidden, d_markov, d_markov_out;
  // |q - p| has a kink where both are equal. Where they are equal in f32, the gradient is as right on the other side
  // of it: so far away are these.
  double to_other_hidden = 0, to_other_markov = 0, to_other_markov_out = 0;
};

// The definitions over whole [R, V] tensors in f64. nudge: a factor of p.
Naive at_nudge(const VocabLossInput& in, double nudge) {
  const auto leaf = [](const at::Tensor& x) { return x.to(at::kDouble).detach().requires_grad_(true); };
  at::Tensor hidden = leaf(in.hidden), markov = leaf(in.markov), markov_out = leaf(in.markov_out);
  const at::Tensor z = at::matmul(hidden, in.head.to(at::kDouble).t()) + at::matmul(markov, markov_out.t());
  const at::Tensor label = ids_tensor(in.label), labelled = label.ge(0).to(at::kDouble);
  Naive out;
  out.ce = -at::log_softmax(z, 1).gather(1, label.clamp_min(0).unsqueeze(1)).squeeze(1) * labelled;
  const at::Tensor y = at::matmul(in.teacher.to(at::kDouble), in.teacher_head.to(at::kDouble).t());
  at::Tensor p = at::softmax(y, 1).index_select(0, ids_tensor(in.teacher_row));
  at::Tensor outside = at::zeros({in.hidden.size(0)}, at::kDouble);
  if (!in.kept_ids.empty()) {
    p = p.index_select(1, ids_tensor(in.kept_ids));
    if (in.renormalised) {
      p = p / p.sum(1, true);
    } else {
      outside = 1.0 - p.sum(1);
    }
  }
  if (in.soft) out.ce = -(at::log_softmax(z, 1) * p).sum(1) * labelled;
  out.l1 = (at::softmax(z, 1) - p * nudge).abs().sum(1) + outside;
  (out.ce * floats(in.ce_scale).to(at::kDouble) + out.l1 * floats(in.l1_scale).to(at::kDouble)).sum().backward();
  out.d_hidden = hidden.grad(), out.d_markov = markov.grad(), out.d_markov_out = markov_out.grad();
  return out;
}

Naive naive(const VocabLossInput& in) {
  Naive out = at_nudge(in, 1);
  constexpr double kRounding = 5e-6;  // of a probability in f32 whose logit is a sum of about ten
  for (const double nudge : {1 - kRounding, 1 + kRounding}) {
    const Naive other = at_nudge(in, nudge);
    const auto widen = [](double& distance, const at::Tensor& a, const at::Tensor& b) {
      distance = std::max(distance, (a - b).norm().item<double>());
    };
    widen(out.to_other_hidden, out.d_hidden, other.d_hidden);
    widen(out.to_other_markov, out.d_markov, other.d_markov);
    widen(out.to_other_markov_out, out.d_markov_out, other.d_markov_out);
  }
  return out;
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, double to_other) {
  EXPECT_LE((found.to(at::kDouble) - expected).norm().item<double>(), 1e-5 * expected.norm().item<double>() + to_other);
}

void expect_equal(const VocabLossOutput& out, const Naive& expected) {
  EXPECT_TRUE(test::close(floats(out.ce), expected.ce, 1e-5, 1e-5));
  EXPECT_TRUE(test::close(floats(out.l1), expected.l1, 2e-6, 1e-5));
  expect_near(out.d_hidden, expected.d_hidden, expected.to_other_hidden);
  expect_near(out.d_markov, expected.d_markov, expected.to_other_markov);
  expect_near(out.d_markov_out, expected.d_markov_out, expected.to_other_markov_out);
}

TEST(VocabLoss, EqualsTheDefinitionsOverWholeTensors) {
  const VocabLossInput in = random_input({}, at::kFloat);
  VocabLoss loss(1 << 24);
  expect_equal(loss(in), naive(in));
}

TEST(VocabLoss, CountsTheTeachersMassOutsideOfAReducedVocabulary) {
  Sizes sizes;
  sizes.kept_ids = every_third(sizes.vocabulary);
  VocabLossInput in = random_input(sizes, at::kFloat);
  VocabLoss loss(1 << 24);
  expect_equal(loss(in), naive(in));
  in.renormalised = true;
  expect_equal(loss(in), naive(in));
}

// Slots behind one position share their Markov row; so do some that do not share a teacher.
VocabLossInput shared_markov(const Sizes& sizes, at::ScalarType dtype) {
  VocabLossInput in = random_input(sizes, dtype);
  in.markov = in.markov.slice(0, 0, sizes.teachers).contiguous();
  for (size_t i = 0; i < in.teacher_row.size(); ++i) {
    in.markov_row.push_back(i % 7 == 0 ? static_cast<int64_t>(i) % sizes.teachers : in.teacher_row[i]);
  }
  return in;
}

// The same with a row of its own for every draft row; the gradient of a shared row is the sum of theirs.
Naive naive_shared(VocabLossInput in) {
  const at::Tensor index = ids_tensor(in.markov_row), shared = in.markov;
  in.markov = shared.index_select(0, index), in.markov_row.clear();
  Naive out = naive(in);
  out.d_markov = at::zeros(shared.sizes(), at::kDouble).index_add(0, index, out.d_markov);
  return out;
}

TEST(VocabLoss, RowsMayShareTheirMarkovRow) {
  Sizes sizes;
  sizes.rows = 60;
  const VocabLossInput in = shared_markov(sizes, at::kFloat);
  const Naive expected = naive_shared(in);
  for (const int64_t bytes : {int64_t{1}, int64_t{200000}, int64_t{1} << 24}) {
    VocabLoss loss(bytes);
    expect_equal(loss(in), expected);
    EXPECT_LE(loss.buffer_bytes(), std::max<int64_t>(bytes, 200000));
  }
  VocabLossInput narrow = shared_markov(sizes, at::kBFloat16);
  narrow.d_markov_out = at::ones(narrow.markov_out.sizes(), at::kFloat);
  const Naive wide = naive_shared(narrow);
  for (const int64_t bytes : {int64_t{400000}, int64_t{1} << 24}) {
    VocabLoss loss(bytes);
    narrow.d_markov_out.fill_(1.0);
    const VocabLossOutput out = loss(narrow);
    EXPECT_LE(loss.buffer_bytes(), bytes);
    EXPECT_TRUE(test::close(floats(out.ce), wide.ce, 1e-5, 1e-5));
    EXPECT_TRUE(test::close_l2(out.d_hidden, wide.d_hidden, 5e-3));
    EXPECT_TRUE(test::close_l2(out.d_markov, wide.d_markov, 5e-3));
    EXPECT_TRUE(test::close_l2(narrow.d_markov_out - 1.0, wide.d_markov_out, 5e-3)) << "added to what is there";
  }
}

// Several bands of more than a panel each, with and without one product for draft and teacher.
TEST(VocabLoss, BandsOfWholePanelsGiveTheSameRows) {
  Sizes sizes;
  sizes.rows = 230, sizes.teachers = 90, sizes.vocabulary = 500;
  VocabLossInput in = shared_markov(sizes, at::kFloat);
  for (const bool one_head : {false, true}) {
    if (one_head) in.teacher_head = in.head;
    const Naive expected = naive_shared(in);
    for (const int64_t rows : {70, 130, 300}) {
      VocabLoss loss(rows * sizes.vocabulary * 4);
      expect_equal(loss(in), expected);
      EXPECT_LE(loss.buffer_bytes(), rows * sizes.vocabulary * 4) << rows;
    }
  }
}

TEST(VocabLoss, SoftLabelsAreTheTeachersProbabilities) {
  VocabLoss loss(400000);
  for (const bool reduced : {false, true}) {
    Sizes sizes;
    if (reduced) sizes.kept_ids = every_third(sizes.vocabulary);
    VocabLossInput in = random_input(sizes, at::kFloat);
    in.soft = true;
    expect_equal(loss(in), naive(in));
    in.renormalised = reduced;
    expect_equal(loss(in), naive(in));
    VocabLossInput shared = shared_markov(sizes, at::kFloat);
    shared.soft = true;
    expect_equal(loss(shared), naive_shared(shared));
    VocabLossInput narrow = shared_markov(sizes, at::kBFloat16);
    narrow.soft = true;
    const Naive wide = naive_shared(narrow);
    const VocabLossOutput out = loss(narrow);
    EXPECT_TRUE(test::close(floats(out.ce), wide.ce, 1e-5, 1e-5));
    EXPECT_TRUE(test::close_l2(out.d_hidden, wide.d_hidden, 5e-3));
    EXPECT_TRUE(test::close_l2(out.d_markov, wide.d_markov, 5e-3));
    EXPECT_TRUE(test::close_l2(out.d_markov_out, wide.d_markov_out, 5e-3));
  }
}

TEST(VocabLoss, KnownLogSumsSpareTheOtherColumns) {
  Sizes sizes;
  sizes.kept_ids = every_third(sizes.vocabulary);
  VocabLossInput in = random_input(sizes, at::kFloat);
  const Naive expected = naive(in);
  in.teacher_log_sum = log_sum_rows(in.teacher, in.teacher_head);
  const at::Tensor logits = at::matmul(in.teacher.to(at::kDouble), in.teacher_head.to(at::kDouble).t());
  EXPECT_TRUE(test::close(in.teacher_log_sum, logits.logsumexp(1), 1e-5, 1e-6));
  in.teacher_kept_head = in.teacher_head.index_select(0, ids_tensor(in.kept_ids));
  in.teacher_head = at::zeros_like(in.teacher_head);  // must not be looked at
  VocabLoss loss(200000);
  expect_equal(loss(in), expected);
  in.renormalised = true;
  EXPECT_THROW(loss(in), Error);
}

TEST(VocabLoss, BandsOfAnySizeGiveTheSameRows) {
  Sizes sizes;
  sizes.kept_ids = every_third(sizes.vocabulary);
  const VocabLossInput in = random_input(sizes, at::kFloat);
  const Naive expected = naive(in);
  for (const int64_t bytes : {int64_t{1}, int64_t{40000}, int64_t{200000}}) {
    VocabLoss loss(bytes);
    expect_equal(loss(in), expected);
  }
}

TEST(VocabLoss, MemoryIsSetByTheTileAndNotByTheRows) {
  const test::OwnKernels own_kernels;  // the buffers are theirs
  Sizes sizes;
  sizes.kept_ids = every_third(sizes.vocabulary);
  for (const int64_t rows : {200, 2000}) {
    sizes.rows = rows;
    sizes.teachers = rows / 2;
    VocabLoss loss(1 << 20);
    loss(random_input(sizes, at::kFloat));
    EXPECT_LE(loss.buffer_bytes(), 1 << 20) << rows;
    EXPECT_GT(loss.buffer_bytes(), 1 << 19) << rows;
  }
}

TEST(VocabLoss, Bf16KeepsLogitsInF32) {
  Sizes sizes;
  sizes.kept_ids = every_third(sizes.vocabulary);
  const VocabLossInput in = random_input(sizes, at::kBFloat16);
  const Naive expected = naive(in);  // of the same bf16 factors, in f64
  VocabLoss loss(1 << 24);
  const VocabLossOutput out = loss(in);
  EXPECT_TRUE(test::close(floats(out.ce), expected.ce, 1e-5, 1e-5));  // bf16 logits would be off by 1e-2
  EXPECT_TRUE(test::close(floats(out.l1), expected.l1, 2e-6, 1e-5));
  EXPECT_TRUE(test::close_l2(out.d_hidden, expected.d_hidden, 5e-3));
  EXPECT_TRUE(test::close_l2(out.d_markov, expected.d_markov, 5e-3));
  EXPECT_TRUE(test::close_l2(out.d_markov_out, expected.d_markov_out, 5e-3));
}

TEST(VocabLoss, IdenticalLogitsHaveNoDistanceAndDisjointOnesTheLargest) {
  VocabLossInput in;
  in.hidden = at::zeros({2, 2});
  in.hidden[0][0] = 1.0, in.hidden[1][1] = 1.0;
  in.head = at::zeros({4, 2});
  for (int64_t id : {0, 1}) in.head[id][0] = 200.0;
  for (int64_t id : {2, 3}) in.head[id][1] = 200.0;
  in.teacher = in.hidden.slice(0, 0, 1).clone(), in.teacher_head = in.head;
  in.teacher_row = {0, 0};
  in.label = {0, 0};
  in.ce_scale = in.l1_scale = {1.0f, 1.0f};
  VocabLoss loss(1 << 20);
  const VocabLossOutput out = loss(in);
  EXPECT_EQ(out.l1[0], 0.0f);
  EXPECT_FLOAT_EQ(out.l1[1], 2.0f);
  EXPECT_EQ(out.correct[0], 1);
  EXPECT_EQ(out.correct[1], 0);
  EXPECT_FLOAT_EQ(out.ce[1], 200.0f + std::log(2.0f));
}

TEST(VocabLoss, CrossEntropyAloneNeedsNoTeacher) {
  VocabLossInput in = random_input({}, at::kFloat);
  in.l1_scale.assign(in.l1_scale.size(), 0.0f);
  const Naive expected = naive(in);
  in.teacher = at::Tensor();
  VocabLoss loss(1 << 24);
  const VocabLossOutput out = loss(in);
  EXPECT_TRUE(test::close(floats(out.ce), expected.ce, 1e-5, 1e-5));
  expect_near(out.d_hidden, expected.d_hidden, expected.to_other_hidden);
}

TEST(VocabLoss, SaysWhatDoesNotFit) {
  VocabLossInput in = random_input({}, at::kFloat);
  in.kept_ids = {1, 2, 3};
  VocabLoss loss(1 << 24);
  EXPECT_THROW(loss(in), Error);
  VocabLossInput soft = random_input({}, at::kFloat);
  soft.soft = true, soft.teacher = at::Tensor();
  EXPECT_THROW(loss(soft), Error) << "without a teacher";
}

// A processor without the instructions for one way takes the library's in its place.
constexpr Bf16Products kWays[] = {Bf16Products::dot, Bf16Products::widened};

TEST(VocabLossProduct, IsExactToF32InBothDtypes) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const auto& [rows, columns, width] :
         {std::array<int64_t, 3>{1, 1, 2}, {5, 300, 64}, {33, 17, 31}, {70, 2500, 48}, {48, 256, 576}, {64, 59, 80}}) {
      const at::Tensor a = at::randn({rows, width}).to(dtype), w = at::randn({columns, width}).to(dtype);
      const at::Tensor expected = at::matmul(a.to(at::kDouble), w.to(at::kDouble).t());
      for (const Bf16Products way : kWays) {
        const at::Tensor out = at::randn({rows, columns + 3}).slice(1, 0, columns);
        product_f32(out, a, w, /*accumulate=*/false, way);
        EXPECT_TRUE(test::close(out, expected, 1e-4, 1e-5)) << rows << "x" << columns << "x" << width;
        product_f32(out, a, w, /*accumulate=*/true, way);
        EXPECT_TRUE(test::close(out, expected * 2.0, 2e-4, 1e-5)) << rows << "x" << columns << "x" << width;
      }
    }
  }
}

TEST(VocabLossProduct, TheWayBackIsExactToF32InBothDtypes) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const auto& [rows, depth, columns] :
         {std::array<int64_t, 3>{1, 1, 1}, {5, 300, 64}, {13, 257, 31}, {37, 2501, 50}, {90, 129, 576}}) {
      const at::Tensor g = at::randn({rows, depth + 5}).to(dtype).slice(1, 0, depth);
      const at::Tensor w = at::randn({depth, columns + 2}).to(dtype).slice(1, 0, columns);
      const at::Tensor expected = at::matmul(g.to(at::kDouble), w.to(at::kDouble));
      for (const Bf16Products way : kWays) {
        const at::Tensor out = at::randn({rows, columns});
        back_product_f32(out, g, w, way);
        EXPECT_TRUE(test::close(out, expected, 3e-4, 1e-5)) << rows << "x" << depth << "x" << columns;
        if (rows < 2) continue;
        const at::Tensor alone = at::empty({1, columns}, at::kFloat);
        back_product_f32(alone, g.slice(0, 1, 2), w, way);
        EXPECT_TRUE(dtype == at::kFloat || test::same_bits(alone, out.slice(0, 1, 2))) << rows;
      }
    }
  }
}

TEST(VocabLoss, OneHeadForDraftAndTeacherIsOneProduct) {
  for (const bool reduced : {false, true}) {
    Sizes sizes;
    if (reduced) sizes.kept_ids = every_third(sizes.vocabulary);
    VocabLossInput in = random_input(sizes, at::kFloat);
    in.teacher_head = reduced ? in.teacher_head.index_copy(0, ids_tensor(in.kept_ids), in.head) : in.head;
    if (reduced) {
      in.teacher_log_sum = log_sum_rows(in.teacher, in.teacher_head);
      in.teacher_kept_head = in.head;
    }
    VocabLoss loss(200000);
    expect_equal(loss(in), naive(in));
  }
}

TEST(VocabLossProduct, ABf16RowHasTheSameBitsAloneAndAmongOthers) {
  const at::Tensor a = at::randn({40, 64}).to(at::kBFloat16), w = at::randn({300, 64}).to(at::kBFloat16);
  const at::Tensor together = at::empty({40, 300}, at::kFloat), alone = at::empty({1, 300}, at::kFloat);
  for (const Bf16Products way : kWays) {
    product_f32(together, a, w, /*accumulate=*/false, way);
    for (int64_t row = 0; row < 40; ++row) {
      product_f32(alone, a.slice(0, row, row + 1), w, /*accumulate=*/false, way);
      EXPECT_TRUE(test::same_bits(alone, together.slice(0, row, row + 1))) << row;
    }
  }
}

TEST(VocabLossRows, EveryInstructionSetAgreesWithThePlainOne) {
  const detail::VocabRowKernels& plain = detail::vocab_row_kernels_plain();
  for (const detail::VocabRowKernels* other : {detail::vocab_row_kernels_avx2(), detail::vocab_row_kernels_avx512()}) {
    if (other == nullptr) continue;
    for (const int64_t n : {1, 16, 37, 1000}) {
      for (const auto& [bf16, soft] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        const at::Tensor logits = at::randn({n}) * 5.0, p = at::softmax(at::randn({n}) * 5.0, 0);
        const at::Tensor bias = at::randn({n}), before = at::randn({n});
        at::Tensor x[2], y[2], sum[2], narrow[2];
        detail::DraftRowTerms terms[2];
        detail::RunningSum sums[2];
        float mass[2];
        for (int which : {0, 1}) {
          const detail::VocabRowKernels& kernels = which == 0 ? plain : *other;
          x[which] = logits.clone(), y[which] = logits.clone(), sum[which] = before.clone();
          narrow[which] = at::zeros({n}, at::kBFloat16);
          kernels.narrow(before.data_ptr<float>(), n, static_cast<uint16_t*>(narrow[which].mutable_data_ptr()));
          kernels.extend(p.data_ptr<float>(), n, sums[which]);
          kernels.extend(logits.data_ptr<float>(), n, sums[which]);
          kernels.probabilities(y[which].data_ptr<float>(), n, {.max = 2.0f, .sum = 3.0f});
          mass[which] = kernels.sum(p.data_ptr<float>(), n);
          terms[which] = kernels.draft({.logits = x[which].data_ptr<float>(),
                                        .bias = bias.data_ptr<float>(),
                                        .teacher = p.data_ptr<float>(),
                                        .teacher_outside = 0.125f,
                                        .n = n,
                                        .label = n / 2,
                                        .soft = soft,
                                        .ce_scale = 0.3f,
                                        .l1_scale = 0.7f,
                                        .gradient = true,
                                        .bf16 = bf16,
                                        .sum = sum[which].data_ptr<float>(),
                                        .first = false});
          if (bf16) x[which] = x[which].view(at::kBFloat16).slice(0, 0, n).clone();
        }
        EXPECT_NEAR(terms[0].ce, terms[1].ce, 1e-5);
        EXPECT_NEAR(terms[0].l1, terms[1].l1, 1e-5);
        EXPECT_EQ(terms[0].correct, terms[1].correct);
        EXPECT_FLOAT_EQ(sums[0].max, sums[1].max);
        EXPECT_NEAR(sums[0].sum, sums[1].sum, 1e-5 * sums[0].sum);
        EXPECT_NEAR(mass[0], mass[1], 1e-6);
        EXPECT_TRUE(test::close(y[0], y[1], 1e-9, 1e-6));
        EXPECT_TRUE(test::close(x[0], x[1], 1e-8, bf16 ? 8e-3 : 1e-4));
        EXPECT_TRUE(test::close(sum[0], sum[1], 1e-6, 1e-6));
        EXPECT_TRUE(test::close(sum[1] - before, x[1], 1e-6, bf16 ? 8e-3 : 1e-4));
        EXPECT_TRUE(test::same_bits(narrow[1], before.to(at::kBFloat16)));
      }
    }
  }
}

}  // namespace
}  // namespace pacer::nn
