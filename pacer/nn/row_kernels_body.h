// The row kernels over a vector of sixteen floats. Included after one row_vector_*.h by one file per instruction set;
// everything is local to that file, so that code for one set can never be linked into another.
#pragma once

#include <type_traits>

#include "pacer/nn/row_kernels.h"

#define PACER_INLINE [[gnu::always_inline]] inline

namespace {

using pacer::nn::Fetch;

// ---- small pieces ----

PACER_INLINE Vec rounded_to(const float*, const Vec& value) { return value; }
PACER_INLINE Vec rounded_to(const uint16_t*, const Vec& value) { return value.as_bf16(); }

// Rounds as a store to T does.
template <typename T>
PACER_INLINE Vec as(const Vec& value) {
  return rounded_to(static_cast<const T*>(nullptr), value);
}

// The first `count` of sixteen; the rest is `fill`.
template <typename T>
Vec load_part(const T* from, int64_t count, float fill) {
  T part[16];
  for (int64_t i = 0; i < 16; ++i) part[i] = i < count ? from[i] : T{};
  float wide[16];
  Vec::load(part).store(wide);
  for (int64_t i = count; i < 16; ++i) wide[i] = fill;
  return Vec::load(wide);
}

template <typename T>
void store_part(const Vec& value, T* to, int64_t count) {
  T part[16];
  value.store(part);
  for (int64_t i = 0; i < count; ++i) to[i] = part[i];
}

template <typename T>
PACER_INLINE Vec load_some(const T* from, int64_t count) {
  return count >= 16 ? Vec::load(from) : load_part(from, count, 0.0f);
}

template <typename T>
PACER_INLINE void store_some(const Vec& value, T* to, int64_t count) {
  count >= 16 ? value.store(to) : store_part(value, to, count);
}

// exp to about one ulp: 2^n * p(r) with n = round(x / ln 2) and ln 2 in two parts (Cody and Waite). Zero below the
// normal numbers.
PACER_INLINE Vec exponential(const Vec& x) {
  const Vec low = Vec::all(-87.33654f), magic = Vec::all(12582912.0f);  // 1.5 * 2^23: adding it rounds to whole
  const Vec bounded = Vec::max(Vec::where_less(x, Vec::all(88.37626f), x, Vec::all(88.37626f)), low);
  const Vec n = Vec::multiply_add(bounded, Vec::all(1.44269504f), magic) - magic;
  Vec r = Vec::multiply_add(n, Vec::all(-0.693359375f), bounded);
  r = Vec::multiply_add(n, Vec::all(2.12194440e-4f), r);
  Vec p = Vec::all(1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    p = Vec::multiply_add(p, r, Vec::all(c));
  }
  const Vec value = Vec::multiply_add(p, r * r, r + Vec::all(1.0f)) * Vec::power_of_two(n);
  return Vec::where_less(x, low, Vec::all(0.0f), value);
}

// ---- product ----

// Fetches a line ahead of its use. Near, few rows wait for memory and do best with a short way, while many compute so
// long that a line must be on its way earlier, to the second cache level first: in the first one it would push out the
// rows of x. Measured with panels of 64 outputs; a wrong choice costs up to a third at some numbers of rows.
template <Fetch kFetch, int kRows>
PACER_INLINE void fetch_ahead(const void* line) {
  const char* at = static_cast<const char*>(line);
  if constexpr (kFetch == Fetch::far || kRows > 5) {
    Vec::prefetch(at + 8192);
    if constexpr (kRows > 5) Vec::prefetch_near(at + 1024);
  } else if constexpr (kRows <= 2) {
    Vec::prefetch(at + 1024);
  } else {
    Vec::prefetch_near(at + 1024);
  }
}

// The loops below take one vector of the panel at a time through all rows: that leaves the registers to the sums, and
// the values of x come from the first cache level as operands of the multiplications.

// y as the first sums, or 0.
template <int kRows, int kVectors>
PACER_INLINE void first_sums(bool add, const float* y, int64_t y_stride, Vec (&acc)[kRows][kVectors]) {
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) acc[m][v] = add ? Vec::load(y + m * y_stride + 16 * v) : Vec::all(0.0f);
  }
}

template <Fetch kFetch, int kRows, int kVectors>
void tile(const float* x, int64_t x_stride, const float* panel, int64_t steps, int64_t lanes, bool add, float* y,
          int64_t y_stride) {
  Vec acc[kRows][kVectors];
  first_sums(add, y, y_stride, acc);
  for (int64_t k = 0; k < steps; ++k, panel += lanes) {
    for (int v = 0; v < kVectors; ++v) {
      const Vec w = Vec::load(panel + 16 * v);
      fetch_ahead<kFetch, kRows>(panel + 16 * v);
      for (int m = 0; m < kRows; ++m) acc[m][v] = Vec::multiply_add(w, Vec::all(x[m * x_stride + k]), acc[m][v]);
    }
  }
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) acc[m][v].store(y + m * y_stride + 16 * v);
  }
}

// A step's pairs of bf16, widened.
template <Fetch kFetch, int kRows, int kVectors>
void tile(const float* x, int64_t x_stride, const uint16_t* panel, int64_t steps, int64_t lanes, bool add, float* y,
          int64_t y_stride) {
  Vec acc[kRows][kVectors];
  first_sums(add, y, y_stride, acc);
  for (int64_t k = 0; k < steps; ++k, panel += 2 * lanes) {
    // The first of each pair through all rows, then the second: both at once would need more registers than there are.
    for (int v = 0; v < kVectors; ++v) {
      const Vec w = Vec::load_first(panel + 32 * v);
      fetch_ahead<kFetch, kRows>(panel + 32 * v);
      for (int m = 0; m < kRows; ++m) acc[m][v] = Vec::multiply_add(w, Vec::all(x[m * x_stride + 2 * k]), acc[m][v]);
    }
    for (int v = 0; v < kVectors; ++v) {
      const Vec w = Vec::load_second(panel + 32 * v);
      for (int m = 0; m < kRows; ++m)
        acc[m][v] = Vec::multiply_add(w, Vec::all(x[m * x_stride + 2 * k + 1]), acc[m][v]);
    }
  }
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) acc[m][v].store(y + m * y_stride + 16 * v);
  }
}

// Of bf16 by an instruction of its own, in the file that has one.
template <Fetch kFetch, int kRows, int kVectors>
void tile(const uint16_t* x, int64_t x_stride, const uint16_t* panel, int64_t steps, int64_t lanes, bool add, float* y,
          int64_t y_stride);

template <typename T>
void widen(const T* x, int64_t count, float* wide) {
  for (int64_t i = 0; i < count; i += 16) store_some(load_some(x + i, count - i), wide + i, count - i);
}

// As one tile, or as two of half the outputs where the sums of all would not fit into the registers. The halves take
// turns every few steps, so that a panel is read as it lies in memory; read one half behind the other it comes a tenth
// slower.
template <Fetch kFetch, int kRows, int kVectors, typename Rows, typename T>
PACER_INLINE void whole_tile(const Rows* x, int64_t x_stride, const T* panel, int64_t steps, int64_t lanes, float* y,
                             int64_t y_stride) {
  if constexpr (std::is_same_v<Rows, float> && kRows * kVectors > 24 && kVectors % 2 == 0) {
    constexpr int64_t kHalf = kVectors / 2 * 16, kPair = sizeof(T) == 2 ? 2 : 1, kTurn = 32;
    for (int64_t begin = 0; begin < steps; begin += kTurn) {
      const int64_t count = steps - begin < kTurn ? steps - begin : kTurn;
      const T* part = panel + begin * lanes * kPair;
      const Rows* inputs = x + begin * kPair;
      tile<kFetch, kRows, kVectors / 2>(inputs, x_stride, part, count, lanes, begin > 0, y, y_stride);
      tile<kFetch, kRows, kVectors / 2>(inputs, x_stride, part + kHalf * kPair, count, lanes, begin > 0, y + kHalf,
                                        y_stride);
    }
  } else {
    tile<kFetch, kRows, kVectors>(x, x_stride, panel, steps, lanes, false, y, y_stride);
  }
}

// Every number of rows and vectors is its own unrolled loop: a loop over rows in memory would cost more than the sums.
template <Fetch kFetch, int kVectors, int kMostRows, typename Rows, typename T>
void rows_of_tile(const Rows* x, int64_t x_stride, int64_t rows, const T* panel, int64_t steps, int64_t lanes, float* y,
                  int64_t y_stride) {
  if constexpr (kMostRows > 0) {
    if (rows == kMostRows)
      return whole_tile<kFetch, kMostRows, kVectors>(x, x_stride, panel, steps, lanes, y, y_stride);
    rows_of_tile<kFetch, kVectors, kMostRows - 1>(x, x_stride, rows, panel, steps, lanes, y, y_stride);
  }
}

template <Fetch kFetch, int kVectors, int kMostRows, typename Rows, typename T>
void product(const Rows* x, int64_t x_stride, int64_t rows, const T* panel, int64_t steps, int64_t lanes, float* y,
             int64_t y_stride) {
  if constexpr (kVectors > 0) {
    if (lanes == 16 * kVectors) {
      return rows_of_tile<kFetch, kVectors, kMostRows>(x, x_stride, rows, panel, steps, lanes, y, y_stride);
    }
    product<kFetch, kVectors - 1, kMostRows>(x, x_stride, rows, panel, steps, lanes, y, y_stride);
  }
}

// ---- rows ----

template <typename T>
void softmax(const float* scores, int64_t begin, int64_t end, int64_t padded, float scale, float* work,
             T* probability) {
  // Lanes belong to absolute positions, so a longer row or an earlier begin elsewhere changes no order of additions.
  const int64_t first = begin / 16 * 16, last = (end + 15) / 16 * 16;
  const float hidden = -__builtin_inff();
  const Vec factor = Vec::all(scale);
  Vec largest = Vec::all(hidden);
  for (int64_t i = first; i < last; i += 16) {
    Vec score = as<T>(as<T>(Vec::load(scores + i)) * factor);
    if (i < begin || i + 16 > end) {
      float lane[16];
      score.store(lane);
      for (int64_t j = 0; j < 16; ++j) lane[j] = i + j < begin || i + j >= end ? hidden : lane[j];
      score = Vec::load(lane);
    }
    largest = Vec::max(largest, score);
    score.store(work + i);
  }
  const Vec top = Vec::all(largest.largest());
  Vec sums = Vec::all(0.0f);
  for (int64_t i = first; i < last; i += 16) {
    const Vec value = exponential(Vec::load(work + i) - top);
    sums = sums + value;
    value.store(work + i);
  }
  const Vec inverse = Vec::all(1.0f / sums.sum()), zero = Vec::all(0.0f);
  for (int64_t i = 0; i < first; i += 16) zero.store(probability + i);
  for (int64_t i = first; i < last; i += 16) (Vec::load(work + i) * inverse).store(probability + i);
  for (int64_t i = last; i < padded; i += 16) zero.store(probability + i);
}

template <typename T>
float rms_norm(const T* x, const T* weight, int64_t width, float epsilon, T* y) {
  Vec squares = Vec::all(0.0f);
  for (int64_t i = 0; i < width; i += 16) {
    const Vec value = load_some(x + i, width - i);
    squares = Vec::multiply_add(value, value, squares);
  }
  const float scale = 1.0f / __builtin_sqrtf(squares.sum() / static_cast<float>(width) + epsilon);
  for (int64_t i = 0; i < width; i += 16) {
    const Vec normed = as<T>(load_some(x + i, width - i) * Vec::all(scale));
    store_some(normed * load_some(weight + i, width - i), y + i, width - i);
  }
  return scale;
}

// sums + bias as the layer's output in T.
template <typename T>
PACER_INLINE Vec finished(const float* sums, const T* bias, int64_t i, int64_t width) {
  const Vec sum = load_some(sums + i, width - i);
  return as<T>(bias == nullptr ? sum : sum + load_some(bias + i, width - i));
}

template <typename T>
void finish(const float* sums, const T* bias, int64_t width, T* y) {
  for (int64_t i = 0; i < width; i += 16) store_some(finished(sums, bias, i, width), y + i, width - i);
}

template <typename T>
void add(const float* sums, const T* bias, int64_t width, T* y) {
  for (int64_t i = 0; i < width; i += 16) {
    store_some(load_some(y + i, width - i) + finished(sums, bias, i, width), y + i, width - i);
  }
}

template <typename T>
void gated(const float* gate, const T* gate_bias, const float* up, const T* up_bias, int64_t width, T* y) {
  const Vec zero = Vec::all(0.0f), one = Vec::all(1.0f);
  for (int64_t i = 0; i < width; i += 16) {
    const Vec z = finished(gate, gate_bias, i, width);
    const Vec silu = as<T>(z / (one + exponential(zero - z)));
    store_some(silu * finished(up, up_bias, i, width), y + i, width - i);
  }
}

template <typename T>
void rotate(T* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; i += 16) {
    const int64_t count = half - i;
    const Vec a = load_some(x + i, count), b = load_some(x + half + i, count);
    const Vec c = as<T>(load_some(cos + i, count)), s = as<T>(load_some(sin + i, count));
    store_some(as<T>(a * c) - as<T>(b * s), x + i, count);
    store_some(as<T>(b * c) + as<T>(a * s), x + half + i, count);
  }
}

// Rows: what products read of x. The number of vectors that fit beside a few rows decides how wide panels are.
template <typename T, typename Rows, int kVectors, int kMostRows>
constexpr pacer::nn::RowKernels<T> table(const char* name) {
  pacer::nn::RowKernels<T> set{name,       16 * kVectors, kMostRows, {},     {},       nullptr,
                               softmax<T>, rms_norm<T>,   finish<T>, add<T>, gated<T>, rotate<T>};
  if constexpr (std::is_same_v<Rows, T>) {
    set.product[0] = product<Fetch::near, kVectors, kMostRows, Rows, T>;
    set.product[1] = product<Fetch::far, kVectors, kMostRows, Rows, T>;
  } else {
    set.wide_product[0] = product<Fetch::near, kVectors, kMostRows, Rows, T>;
    set.wide_product[1] = product<Fetch::far, kVectors, kMostRows, Rows, T>;
    set.widen = widen<T>;
  }
  return set;
}

}  // namespace

#undef PACER_INLINE
