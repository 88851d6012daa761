#include "pacer/nn/vocab_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/plain.h"
#include "pacer/nn/vocab_loss_markov.h"
#include "pacer/nn/vocab_loss_product.h"
#include "pacer/nn/vocab_loss_rows.h"

namespace pacer::nn {
namespace {

constexpr int64_t kTile = 2048;  // teacher columns at once when only some of them are kept
constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kMostWaiting = 256;  // Markov gradients that wait for one product; more make it no faster

at::Tensor index_tensor(const std::vector<int64_t>& values) {
  return at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kLong).clone();
}

// Teacher columns at once; without kept_ids the product goes to its place directly.
int64_t tile_columns(const VocabLossInput& in) {
  const bool tiled = in.teacher.defined() && !in.kept_ids.empty() && !in.teacher_log_sum.defined();
  return tiled ? std::min(kTile, in.teacher_head.size(0)) : 0;
}

// The draft's head is what the teacher's kept logits come from, as a rule: both are then one product, which reads the
// head once.
bool one_head(const VocabLossInput& in) {
  if (!in.teacher.defined()) return false;
  const at::Tensor& teacher = in.kept_ids.empty() ? in.teacher_head : in.teacher_kept_head;
  return teacher.defined() && teacher.const_data_ptr() == in.head.const_data_ptr() &&
         teacher.sizes() == in.head.sizes() && teacher.strides() == in.head.strides() &&
         teacher.scalar_type() == in.head.scalar_type();
}

// No column of the teacher is needed but those that the draft has.
bool teacher_kept_only(const VocabLossInput& in) {
  return in.teacher.defined() && (in.kept_ids.empty() || in.teacher_log_sum.defined());
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
    require(in.markov_out.size(0) == in.head.size(0) && in.markov.size(1) == in.markov_out.size(1) &&
                in.markov.is_contiguous() &&
                (in.markov_row.empty() ? in.markov.size(0) == in.hidden.size(0) : in.markov_row.size() == rows),
            "markov [M, r], markov_row [R] and markov_out [n, r] do not fit");
    require(!in.d_markov_out.defined() ||
                (in.d_markov_out.sizes() == in.markov_out.sizes() && in.d_markov_out.scalar_type() == at::kFloat),
            "the gradient of markov_out must be [n, r] f32");
  }
  require(in.markov.defined() || in.markov_row.empty(), "markov_row without markov");
  require(in.teacher.defined() || !in.soft, "soft labels need a teacher");
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

// Some draft rows, their distinct teacher and Markov rows, and the places of their logits.
struct VocabLoss::Band {
  std::vector<int64_t> rows;      // input row of each band row
  std::vector<int64_t> teachers;  // distinct rows of input.teacher, ascending
  std::vector<int64_t> teacher;   // band row -> index into teachers
  std::vector<int64_t> markovs;  // with markov_row: rows of input.markov, one for every run of band rows that share one
  std::vector<int64_t> run;      // with markov_row: where each run begins, and the number of rows
  at::Tensor logits;             // [rows + teachers, n] f32: the next two, one behind the other
  at::Tensor draft;              // [rows, n] f32
  at::Tensor teacher_kept;       // [teachers, n] f32
  at::Tensor markov;             // [markovs, n] f32
  at::Tensor tile;               // [teachers * tile columns] f32, only with kept_ids
  std::vector<float> outside;    // [teachers] probability outside the draft vocabulary

  // The next row, and what it does not share with the one before.
  void add(int64_t row, std::optional<int64_t> new_teacher, std::optional<int64_t> new_markov) {
    if (new_teacher) teachers.push_back(*new_teacher);
    if (new_markov) markovs.push_back(*new_markov), run.push_back(static_cast<int64_t>(rows.size()));
    rows.push_back(row);
    teacher.push_back(static_cast<int64_t>(teachers.size()) - 1);
  }
  // The first `count` rows only, at least one.
  void keep(size_t count) {
    rows.resize(count), teacher.resize(count);
    if (!teachers.empty()) teachers.resize(static_cast<size_t>(teacher.back()) + 1);
    while (!run.empty() && run.back() >= static_cast<int64_t>(count)) run.pop_back(), markovs.pop_back();
  }

  int64_t floats(const VocabLossInput& in) const {
    return static_cast<int64_t>(rows.size() + teachers.size() + markovs.size()) * in.head.size(0) +
           static_cast<int64_t>(teachers.size()) * tile_columns(in);
  }
};

// What lies in the buffer: the logits of a band, then (only for shared Markov rows) a row of sums for each thread and
// the gradient rows that wait for their product.
struct VocabLoss::Layout {
  int64_t band = 0, sums = 0, waiting = 0;  // floats
  int64_t waiting_rows = 0;
};

int64_t VocabLoss::buffer_bytes() const { return buffer_.defined() ? static_cast<int64_t>(buffer_.nbytes()) : 0; }

// Rows in the order of their teachers, so that those which share one (and its Markov row) follow each other; cut where
// the logits of a band reach `floats` or its Markov rows `markovs`. Of the rows of a band's product a last few that do
// not fill a panel cost nearly as much as if they did, and a last small band reads the head for a few rows: bands have
// whole panels, and about the same number of them.
std::vector<VocabLoss::Band> VocabLoss::bands(const VocabLossInput& in, int64_t floats, int64_t markovs) {
  std::vector<int64_t> order(in.label.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto key = [&in](int64_t row) {
    const auto at = static_cast<size_t>(row);
    return std::pair(in.teacher.defined() ? in.teacher_row[at] : 0, in.markov_row.empty() ? 0 : in.markov_row[at]);
  };
  std::stable_sort(order.begin(), order.end(), [&key](int64_t a, int64_t b) { return key(a) < key(b); });
  const bool together = one_head(in) && teacher_kept_only(in);
  const auto products = [together](size_t rows, size_t teachers) {
    return static_cast<int64_t>(rows + (together ? teachers : 0));
  };

  // The band that begins at order[begin], with at most so many rows of the product.
  const auto band_from = [&](size_t begin, int64_t most) {
    const int64_t n = in.head.size(0);
    Band band;
    std::vector<int64_t> counts;  // rows of the product, behind each row of the band
    size_t end = begin;
    for (; end < order.size(); ++end) {
      const bool first = end == begin;
      const auto [teacher, markov] = key(order[end]);
      const bool new_teacher = in.teacher.defined() && (first || key(order[end - 1]).first != teacher);
      const bool new_run = !in.markov_row.empty() && (first || key(order[end - 1]) != key(order[end]));
      const int64_t more = n + (new_teacher ? n + tile_columns(in) : 0) + (new_run ? n : 0);
      const int64_t count = products(band.rows.size() + 1, band.teachers.size() + (new_teacher ? 1 : 0));
      if (!first && (band.floats(in) + more > floats || count > most ||
                     (new_run && static_cast<int64_t>(band.markovs.size()) == markovs))) {
        break;
      }
      band.add(order[end], new_teacher ? std::optional(teacher) : std::nullopt,
               new_run ? std::optional(markov) : std::nullopt);
      counts.push_back(count);
    }
    const int64_t whole = counts.back() / kProductPanel * kProductPanel;
    if (end < order.size() && whole > 0) {
      band.keep(static_cast<size_t>(std::upper_bound(counts.begin(), counts.end(), whole) - counts.begin()));
    }
    band.run.push_back(static_cast<int64_t>(band.rows.size()));
    return band;
  };
  const auto all = [&](int64_t most) {
    std::vector<Band> bands;
    for (size_t begin = 0; begin < order.size(); begin += bands.back().rows.size()) {
      bands.push_back(band_from(begin, most));
    }
    return bands;
  };

  std::vector<Band> bands = all(std::numeric_limits<int64_t>::max());
  if (bands.size() < 2) return bands;
  int64_t total = 0;
  for (const Band& band : bands) total += products(band.rows.size(), band.teachers.size());
  const auto panels = static_cast<int64_t>(bands.size()) * kProductPanel;
  return all((total + panels - 1) / panels * kProductPanel);
}

void VocabLoss::place(const VocabLossInput& in, Band& band) const {
  const int64_t n = in.head.size(0);
  int64_t at = 0;
  const auto next = [&](size_t rows, int64_t width) {
    const auto count = static_cast<int64_t>(rows);
    const at::Tensor part = buffer_.slice(0, at, at + count * width);
    at += count * width;
    return part.view({count, width});
  };
  band.logits = buffer_.slice(0, 0, static_cast<int64_t>(band.rows.size() + band.teachers.size()) * n).view({-1, n});
  band.draft = next(band.rows.size(), n);
  band.teacher_kept = next(band.teachers.size(), n);
  band.markov = next(band.markovs.size(), n);
  band.tile = next(band.teachers.size(), tile_columns(in)).flatten();
}

// Logits of the draft without the Markov term, and of the teacher where no column is needed but the kept ones.
void VocabLoss::head_products(const VocabLossInput& in, const Band& band) {
  const at::Tensor hidden = in.hidden.index_select(0, index_tensor(band.rows));
  const bool kept_only = teacher_kept_only(in);
  const at::Tensor states = kept_only ? in.teacher.index_select(0, index_tensor(band.teachers)) : at::Tensor();
  if (kept_only && one_head(in)) {
    product_f32(band.logits, at::cat({hidden, states}), in.head);
    return;
  }
  product_f32(band.draft, hidden, in.head);
  if (kept_only) {
    product_f32(band.teacher_kept, states, in.kept_ids.empty() ? in.teacher_head : in.teacher_kept_head);
  }
}

void VocabLoss::teacher_probabilities(const VocabLossInput& in, Band& band) {
  const detail::VocabRowKernels& kernels = detail::vocab_row_kernels();
  const auto count = static_cast<int64_t>(band.teachers.size());
  const int64_t n = in.head.size(0), vocabulary = in.teacher_head.size(0);
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
    each([&](int64_t row, size_t at) { kernels.extend(kept_data + row * n, n, sums[at]); });
  } else if (in.teacher_log_sum.defined()) {
    const float* const known = in.teacher_log_sum.const_data_ptr<float>();
    for (size_t at = 0; at < band.teachers.size(); ++at) sums[at] = {.max = known[band.teachers[at]], .sum = 1.0f};
  } else {
    const at::Tensor states = in.teacher.index_select(0, index_tensor(band.teachers));
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

// The rows of a run, one after the other: their gradients are added to the run's sum in this order.
void VocabLoss::draft_run(const VocabLossInput& in, const Band& band, size_t run, float* sum, VocabLossOutput& out) {
  const detail::VocabRowKernels& kernels = detail::vocab_row_kernels();
  const int64_t n = in.head.size(0), begin = in.markov_row.empty() ? static_cast<int64_t>(run) : band.run[run];
  const int64_t end = in.markov_row.empty() ? begin + 1 : band.run[run + 1];
  float* const logits = band.draft.mutable_data_ptr<float>();
  const float* const teacher = in.teacher.defined() ? band.teacher_kept.const_data_ptr<float>() : nullptr;
  const float* const markov = band.markovs.empty() ? nullptr : band.markov.const_data_ptr<float>();
  for (int64_t i = begin; i < end; ++i) {
    const auto row = static_cast<size_t>(band.rows[static_cast<size_t>(i)]);
    const int64_t taught = teacher == nullptr ? 0 : band.teacher[static_cast<size_t>(i)];
    const detail::DraftRowTerms terms = kernels.draft({
        .logits = logits + i * n,
        .bias = markov == nullptr ? nullptr : markov + static_cast<int64_t>(run) * n,
        .teacher = teacher == nullptr ? nullptr : teacher + taught * n,
        .teacher_outside = teacher == nullptr ? 0.0f : band.outside[static_cast<size_t>(taught)],
        .n = n,
        .label = in.label[row],
        .soft = in.soft,
        .ce_scale = in.label[row] < 0 ? 0.0f : in.ce_scale[row],
        .l1_scale = in.l1_scale[row],
        .gradient = in.gradient,
        .bf16 = in.hidden.scalar_type() == at::kBFloat16,
        .sum = sum,
        .first = i == begin,
    });
    out.ce[row] = terms.ce;
    out.l1[row] = terms.l1;
    out.correct[row] = terms.correct ? 1 : 0;
  }
}

void VocabLoss::draft_rows(const VocabLossInput& in, const Band& band, const Layout& layout,
                           detail::MarkovGradient* shared, VocabLossOutput& out) const {
  const int64_t n = in.head.size(0);
  const bool bf16 = in.hidden.scalar_type() == at::kBFloat16, own_markov = in.markov.defined() && in.markov_row.empty();
  const at::Tensor rows = index_tensor(band.rows), &logits = band.draft;
  const at::Tensor markov = own_markov ? in.markov.index_select(0, rows) : at::Tensor();
  if (own_markov) product_f32(logits, markov, in.markov_out, /*accumulate=*/true);
  if (!band.markovs.empty()) {
    product_f32(band.markov, in.markov.index_select(0, index_tensor(band.markovs)), in.markov_out);
  }

  const at::Tensor sums = shared == nullptr ? at::Tensor() : shared->places(band.markovs);
  const auto runs = static_cast<int64_t>(band.markovs.empty() ? band.rows.size() : band.markovs.size());
  at::parallel_for(0, runs, 1, [&](int64_t begin, int64_t end) {
    float* const scratch = buffer_.mutable_data_ptr<float>() + layout.band + at::get_thread_num() * n;
    for (int64_t run = begin; run < end; ++run) {
      if (shared == nullptr) {
        draft_run(in, band, static_cast<size_t>(run), nullptr, out);
      } else if (!bf16) {
        draft_run(in, band, static_cast<size_t>(run), sums.mutable_data_ptr<float>() + run * n, out);
      } else {
        draft_run(in, band, static_cast<size_t>(run), scratch, out);
        detail::vocab_row_kernels().narrow(scratch, n, static_cast<uint16_t*>(sums.mutable_data_ptr()) + run * n);
      }
    }
  });
  if (!in.gradient) return;

  // A bf16 gradient row lies at the start of its f32 row: the product reads it with the f32 row's stride.
  const at::Tensor gradient = bf16 ? logits.view(at::kBFloat16).slice(1, 0, n) : logits;
  const auto back = [&](const at::Tensor& weight, const at::Tensor& to) {
    const at::Tensor product = at::empty({rows.size(0), weight.size(1)}, at::kFloat);
    back_product_f32(product, gradient, weight);
    to.index_copy_(0, rows, product.to(to.scalar_type()));
  };
  back(in.head, out.d_hidden);
  if (own_markov) {
    back(in.markov_out, out.d_markov);
    out.d_markov_out.add_(at::mm(gradient.t(), markov));
  }
}

VocabLossOutput VocabLoss::operator()(const VocabLossInput& in) {
  check(in);
  if (!device::own_kernels(in.hidden)) return plain::vocab_loss(in, tile_bytes_);
  const int64_t rows = in.hidden.size(0), n = in.head.size(0);
  VocabLossOutput out;
  out.ce.resize(static_cast<size_t>(rows)), out.l1.resize(static_cast<size_t>(rows));
  out.correct.resize(static_cast<size_t>(rows));
  if (in.gradient) {
    out.d_hidden = at::empty(in.hidden.sizes(), in.hidden.options());
    if (in.markov.defined()) {
      out.d_markov = at::zeros(in.markov.sizes(), in.markov.options());
      out.d_markov_out = in.d_markov_out.defined()
                             ? in.d_markov_out
                             : at::zeros(in.markov_out.sizes(), in.markov_out.options().dtype(at::kFloat));
    }
  }

  // A quarter of the memory is for the shared Markov rows' gradients, the rest for logits.
  const bool shared = in.gradient && !in.markov_row.empty();
  const int64_t items = kFloat / static_cast<int64_t>(in.hidden.element_size()), floats = tile_bytes_ / kFloat;
  Layout layout;
  if (shared) {
    const int64_t most = std::min(in.markov.size(0), kMostWaiting);
    layout.waiting_rows = std::clamp<int64_t>(floats / 4 * items / n, 1, most);
    layout.waiting = (layout.waiting_rows * n + items - 1) / items;
    layout.sums = items == 1 ? 0 : at::get_num_threads() * n;
  }
  std::vector<Band> bands = VocabLoss::bands(in, floats - layout.waiting - layout.sums,
                                             shared ? layout.waiting_rows : std::numeric_limits<int64_t>::max());
  for (const Band& band : bands) layout.band = std::max(layout.band, band.floats(in));
  if (const int64_t total = layout.band + layout.sums + layout.waiting; !buffer_.defined() || buffer_.numel() < total) {
    buffer_ = at::Tensor();  // the old one goes first: both at once would pass the bound
    buffer_ = at::empty({total}, at::kFloat);
  }
  std::optional<detail::MarkovGradient> gradient;
  if (shared) {
    const at::Tensor waiting = buffer_.slice(0, layout.band + layout.sums).view(in.hidden.scalar_type());
    gradient.emplace(waiting.slice(0, 0, layout.waiting_rows * n), in.markov, in.markov_out, out.d_markov,
                     out.d_markov_out);
  }
  for (Band& band : bands) {
    place(in, band);
    head_products(in, band);
    if (in.teacher.defined()) teacher_probabilities(in, band);
    draft_rows(in, band, layout, gradient ? &*gradient : nullptr, out);
  }
  if (gradient) gradient->finish();
  return out;
}

at::Tensor log_sums_of(const at::Tensor& logits) {
  if (!device::own_kernels(logits)) return device::to_host(at::logsumexp(logits, {1}));
  const detail::VocabRowKernels& kernels = detail::vocab_row_kernels();
  const int64_t rows = logits.size(0), columns = logits.size(1), stride = logits.stride(0);
  const float* const data = logits.const_data_ptr<float>();
  at::Tensor out = at::empty({rows}, at::kFloat);
  float* const to = out.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      detail::RunningSum sum;
      kernels.extend(data + row * stride, columns, sum);
      to[row] = sum.max + std::log(sum.sum);
    }
  });
  return out;
}

at::Tensor log_sum_rows(const at::Tensor& states, const at::Tensor& head) {
  if (!device::own_kernels(states)) return plain::log_sum_rows(states, head);
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

}  // namespace pacer::nn
