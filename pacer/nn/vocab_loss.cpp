#include "pacer/nn/vocab_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/nn/vocab_loss_product.h"
#include "pacer/nn/vocab_loss_rows.h"

namespace pacer::nn {
namespace {

constexpr int64_t kTile = 2048;  // teacher columns at once when only some of them are kept
constexpr int64_t kFloat = sizeof(float);

at::Tensor index_tensor(const std::vector<int64_t>& values) {
  return at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kLong).clone();
}

// Teacher columns at once; without kept_ids the product goes to its place directly.
int64_t tile_columns(const VocabLossInput& in) {
  const bool tiled = in.teacher.defined() && !in.kept_ids.empty() && !in.teacher_log_sum.defined();
  return tiled ? std::min(kTile, in.teacher_head.size(0)) : 0;
}

void require(bool fits, const char* what) {
  if (!fits) throw Error(ErrorKind::bug, std::string("vocab_loss: ") + what);
}

void check(const VocabLossInput& in) {
  const auto rows = static_cast<size_t>(in.hidden.size(0));
  require(in.hidden.dim() == 2 && in.head.dim() == 2 && in.hidden.size(1) == in.head.size(1),
          "hidden rows and head differ in width");
  require(in.hidden.is_contiguous() && in.hidden.scalar_type() == in.head.scalar_type(),
          "hidden rows must be dense and of the head's dtype");
  require(in.label.size() == rows && in.ce_scale.size() == rows && in.l1_scale.size() == rows,
          "labels and scales must be given for every row");
  require(in.markov.defined() == in.markov_out.defined(), "markov and markov_out go together");
  if (in.markov.defined()) {
    require(in.markov.size(0) == in.hidden.size(0) && in.markov_out.size(0) == in.head.size(0) &&
                in.markov.size(1) == in.markov_out.size(1) && in.markov.is_contiguous(),
            "markov [R, r] and markov_out [n, r] do not fit");
  }
  if (in.teacher.defined()) {
    require(in.teacher.size(1) == in.teacher_head.size(1) && in.teacher_row.size() == rows, "teacher rows do not fit");
    require(in.kept_ids.empty() ? in.teacher_head.size(0) == in.head.size(0)
                                : static_cast<int64_t>(in.kept_ids.size()) == in.head.size(0),
            "kept_ids do not map the draft vocabulary to the teacher's");
    require(in.teacher_log_sum.defined() == in.teacher_kept_head.defined() &&
                (!in.teacher_log_sum.defined() || (!in.kept_ids.empty() && !in.renormalised)),
            "known log sums need the kept head, kept_ids, and a teacher that is not renormalised");
    if (in.teacher_log_sum.defined()) {
      require(in.teacher_log_sum.numel() == in.teacher.size(0) && in.teacher_log_sum.is_contiguous() &&
                  in.teacher_log_sum.scalar_type() == at::kFloat && in.teacher_kept_head.size(0) == in.head.size(0),
              "known log sums must be [T] f32 and the kept head [n, H']");
    }
  }
}

}  // namespace

// Some draft rows, their distinct teacher rows, and the places of their logits.
struct VocabLoss::Band {
  std::vector<int64_t> rows;      // input row of each band row
  std::vector<int64_t> teachers;  // distinct rows of input.teacher, ascending
  std::vector<int64_t> teacher;   // band row -> index into teachers
  at::Tensor draft;               // [rows, n] f32
  at::Tensor teacher_kept;        // [teachers, n] f32
  at::Tensor tile;                // [teachers * tile columns] f32, only with kept_ids
  std::vector<float> outside;     // [teachers] probability outside the draft vocabulary
};

int64_t VocabLoss::buffer_bytes() const { return buffer_.defined() ? static_cast<int64_t>(buffer_.nbytes()) : 0; }

void VocabLoss::place(const VocabLossInput& in, Band& band) {
  const auto rows = static_cast<int64_t>(band.rows.size()), teachers = static_cast<int64_t>(band.teachers.size());
  const int64_t n = in.head.size(0), tile = teachers * tile_columns(in);
  const int64_t total = (rows + teachers) * n + tile;
  if (!buffer_.defined() || buffer_.numel() < total) {
    buffer_ = at::Tensor();  // the old one goes first: both at once would pass the bound
    buffer_ = at::empty({total}, at::kFloat);
  }
  band.draft = buffer_.slice(0, 0, rows * n).view({rows, n});
  band.teacher_kept = buffer_.slice(0, rows * n, (rows + teachers) * n).view({teachers, n});
  band.tile = buffer_.slice(0, (rows + teachers) * n, total);
}

void VocabLoss::teacher_probabilities(const VocabLossInput& in, Band& band) {
  const detail::VocabRowKernels& kernels = detail::vocab_row_kernels();
  const auto count = static_cast<int64_t>(band.teachers.size());
  const int64_t n = in.head.size(0), vocabulary = in.teacher_head.size(0);
  const at::Tensor states = in.teacher.index_select(0, index_tensor(band.teachers));
  const at::Tensor& kept = band.teacher_kept;
  float* const kept_data = kept.mutable_data_ptr<float>();
  std::vector<detail::RunningSum> sums(static_cast<size_t>(count));
  band.outside.assign(static_cast<size_t>(count), 0.0f);

  const auto each = [count](const auto& body) {
    at::parallel_for(0, count, 8, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row, static_cast<size_t>(row));
    });
  };
  if (in.kept_ids.empty()) {
    product_f32(kept, states, in.teacher_head);
    each([&](int64_t row, size_t at) { kernels.extend(kept_data + row * n, n, sums[at]); });
  } else if (in.teacher_log_sum.defined()) {
    product_f32(kept, states, in.teacher_kept_head);
    const float* const known = in.teacher_log_sum.const_data_ptr<float>();
    for (size_t at = 0; at < band.teachers.size(); ++at) sums[at] = {.max = known[band.teachers[at]], .sum = 1.0f};
  } else {
    const int64_t width = tile_columns(in);
    for (int64_t begin = 0; begin < vocabulary; begin += width) {
      const int64_t end = std::min(begin + width, vocabulary);
      const at::Tensor tile = band.tile.slice(0, 0, count * (end - begin)).view({count, end - begin});
      const float* const tile_data = tile.const_data_ptr<float>();
      product_f32(tile, states, in.teacher_head.slice(0, begin, end));
      const auto first = std::lower_bound(in.kept_ids.begin(), in.kept_ids.end(), begin) - in.kept_ids.begin();
      const auto last = std::lower_bound(in.kept_ids.begin(), in.kept_ids.end(), end) - in.kept_ids.begin();
      each([&](int64_t row, size_t at) {
        const float* from = tile_data + row * (end - begin);
        if (!in.renormalised) kernels.extend(from, end - begin, sums[at]);
        float* to = kept_data + row * n;
        for (int64_t i = first; i < last; ++i) to[i] = from[in.kept_ids[static_cast<size_t>(i)] - begin];
      });
    }
    if (in.renormalised) {
      each([&](int64_t row, size_t at) { kernels.extend(kept_data + row * n, n, sums[at]); });
    }
  }
  each([&](int64_t row, size_t at) {
    kernels.probabilities(kept_data + row * n, n, sums[at]);
    if (!in.kept_ids.empty() && !in.renormalised) {
      band.outside[at] = std::max(0.0f, 1.0f - kernels.sum(kept_data + row * n, n));
    }
  });
}

void VocabLoss::draft_rows(const VocabLossInput& in, const Band& band, VocabLossOutput& out) {
  const detail::VocabRowKernels& kernels = detail::vocab_row_kernels();
  const auto count = static_cast<int64_t>(band.rows.size());
  const int64_t n = in.head.size(0);
  const bool bf16 = in.hidden.scalar_type() == at::kBFloat16;
  const at::Tensor rows = index_tensor(band.rows);
  const at::Tensor& logits = band.draft;
  const at::Tensor markov = in.markov.defined() ? in.markov.index_select(0, rows) : at::Tensor();
  product_f32(logits, in.hidden.index_select(0, rows), in.head);
  if (markov.defined()) product_f32(logits, markov, in.markov_out, /*accumulate=*/true);

  float* const data = logits.mutable_data_ptr<float>();
  const float* const teacher = in.teacher.defined() ? band.teacher_kept.const_data_ptr<float>() : nullptr;
  at::parallel_for(0, count, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto row = static_cast<size_t>(band.rows[static_cast<size_t>(i)]);
      const int64_t taught = teacher == nullptr ? 0 : band.teacher[static_cast<size_t>(i)];
      const detail::DraftRowTerms terms = kernels.draft({
          .logits = data + i * n,
          .teacher = teacher == nullptr ? nullptr : teacher + taught * n,
          .teacher_outside = teacher == nullptr ? 0.0f : band.outside[static_cast<size_t>(taught)],
          .n = n,
          .label = in.label[row],
          .ce_scale = in.label[row] < 0 ? 0.0f : in.ce_scale[row],
          .l1_scale = in.l1_scale[row],
          .gradient = in.gradient,
          .bf16 = bf16,
      });
      out.ce[row] = terms.ce;
      out.l1[row] = terms.l1;
      out.correct[row] = terms.correct ? 1 : 0;
    }
  });
  if (!in.gradient) return;

  // A bf16 gradient row lies at the start of its f32 row: the product reads it with the f32 row's stride.
  const at::Tensor gradient = bf16 ? logits.view(at::kBFloat16).slice(1, 0, n) : logits;
  out.d_hidden.index_copy_(0, rows, at::mm(gradient, in.head));
  if (markov.defined()) {
    out.d_markov.index_copy_(0, rows, at::mm(gradient, in.markov_out));
    out.d_markov_out.add_(at::mm(gradient.t(), markov));
  }
}

at::Tensor log_sum_rows(const at::Tensor& states, const at::Tensor& head) {
  const detail::VocabRowKernels& kernels = detail::vocab_row_kernels();
  const int64_t rows = states.size(0), columns = head.size(0), width = std::min(kTile, columns);
  const at::Tensor dense = states.contiguous(), tile = at::empty({rows, width}, at::kFloat);
  std::vector<detail::RunningSum> sums(static_cast<size_t>(rows));
  for (int64_t begin = 0; begin < columns; begin += width) {
    const int64_t count = std::min(width, columns - begin);
    product_f32(tile.slice(1, 0, count), dense, head.slice(0, begin, begin + count));
    const float* const data = tile.const_data_ptr<float>();
    at::parallel_for(0, rows, 8, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        kernels.extend(data + row * width, count, sums[static_cast<size_t>(row)]);
      }
    });
  }
  at::Tensor out = at::empty({rows}, at::kFloat);
  float* const to = out.mutable_data_ptr<float>();
  for (size_t row = 0; row < sums.size(); ++row) to[row] = sums[row].max + std::log(sums[row].sum);
  return out;
}

VocabLossOutput VocabLoss::operator()(const VocabLossInput& in) {
  check(in);
  const int64_t rows = in.hidden.size(0), n = in.head.size(0);
  VocabLossOutput out;
  out.ce.resize(static_cast<size_t>(rows)), out.l1.resize(static_cast<size_t>(rows));
  out.correct.resize(static_cast<size_t>(rows));
  if (in.gradient) {
    out.d_hidden = at::empty(in.hidden.sizes(), in.hidden.options());
    if (in.markov.defined()) {
      out.d_markov = at::empty(in.markov.sizes(), in.markov.options());
      out.d_markov_out = at::zeros(in.markov_out.sizes(), in.markov_out.options().dtype(at::kFloat));
    }
  }

  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (in.teacher.defined()) {
    std::stable_sort(order.begin(), order.end(), [&in](int64_t a, int64_t b) {
      return in.teacher_row[static_cast<size_t>(a)] < in.teacher_row[static_cast<size_t>(b)];
    });
  }
  const int64_t teacher_bytes = in.teacher.defined() ? kFloat * (n + tile_columns(in)) : 0;
  for (size_t next = 0; next < order.size();) {
    Band band;
    for (int64_t bytes = 0; next < order.size(); ++next) {
      const int64_t row = order[next];
      const int64_t taught = in.teacher.defined() ? in.teacher_row[static_cast<size_t>(row)] : 0;
      const bool fresh = in.teacher.defined() && (band.teachers.empty() || band.teachers.back() != taught);
      bytes += kFloat * n + (fresh ? teacher_bytes : 0);
      if (bytes > tile_bytes_ && !band.rows.empty()) break;
      if (fresh) band.teachers.push_back(taught);
      band.rows.push_back(row);
      band.teacher.push_back(static_cast<int64_t>(band.teachers.size()) - 1);
    }
    place(in, band);
    if (in.teacher.defined()) teacher_probabilities(in, band);
    draft_rows(in, band, out);
  }
  return out;
}

}  // namespace pacer::nn
