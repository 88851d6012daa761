#include "pacer/nn/vocab_loss_product.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>

#include "pacer/base/error.h"
#include "pacer/nn/vocab_loss_product_kernel.h"

namespace pacer::nn {
namespace {

constexpr int64_t kUnit = 4;          // bytes of an f32 or of a pair of bf16
constexpr int64_t kBackColumns = 32;  // that the kernel takes together
constexpr int64_t kColumns = 192;     // a column block of w stays in the second-level cache while all panels pass

// [panel][unit][row of the panel]: a vector load brings one unit of 16 rows. Missing rows of the last panel are 0.
std::unique_ptr<uint32_t[]> pack_rows(const char* a, int64_t rows, int64_t units) {
  const int64_t panels = (rows + kProductPanel - 1) / kProductPanel;
  std::unique_ptr<uint32_t[]> packed(new uint32_t[static_cast<size_t>(panels * units * kProductPanel)]);
  for (int64_t panel = 0; panel < panels; ++panel) {
    uint32_t* to = packed.get() + panel * units * kProductPanel;
    const int64_t live = std::min(kProductPanel, rows - panel * kProductPanel);
    if (live < kProductPanel) std::memset(to, 0, static_cast<size_t>(units * kProductPanel) * kUnit);
    for (int64_t row = 0; row < live; ++row) {
      const char* from = a + (panel * kProductPanel + row) * units * kUnit;
      for (int64_t unit = 0; unit < units; ++unit)
        std::memcpy(to + unit * kProductPanel + row, from + unit * kUnit, kUnit);
    }
  }
  return packed;
}

void widened(const at::Tensor& out, const at::Tensor& a, const at::Tensor& w, bool accumulate) {
  const at::Tensor left = a.to(at::kFloat);
  for (int64_t begin = 0; begin < w.size(0); begin += 2048) {  // bounds the widened copy of w
    const int64_t end = std::min(begin + 2048, w.size(0));
    const at::Tensor right = w.slice(0, begin, end).to(at::kFloat).t();
    at::Tensor columns = out.slice(1, begin, end);
    if (accumulate) {
      columns.addmm_(left, right);
    } else {
      at::mm_out(columns, left, right);
    }
  }
}

// bf16 factors by the kernel for f32: a whole, w by blocks of columns, so that the widened ones stay in the
// second-level cache while all rows pass.
void product_of_widened(detail::Product kernel, const at::Tensor& out, const at::Tensor& a, const at::Tensor& w,
                        bool accumulate) {
  const int64_t rows = a.size(0), width = a.size(1), columns = w.size(0), stride = w.stride(0) * 2;
  const at::Tensor left = a.to(at::kFloat);
  const auto packed = pack_rows(static_cast<const char*>(left.const_data_ptr()), rows, width);
  const char* weights = static_cast<const char*>(w.const_data_ptr());
  float* to = static_cast<float*>(out.mutable_data_ptr());
  const int64_t blocks = (columns + kColumns - 1) / kColumns;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> wide(static_cast<size_t>(std::min(kColumns, columns) * width));
    for (int64_t first = begin * kColumns; first < std::min(columns, end * kColumns); first += kColumns) {
      const int64_t count = std::min(kColumns, columns - first);
      for (int64_t column = 0; column < count; ++column) {
        detail::widen_bf16_avx512(weights + (first + column) * stride, width, wide.data() + column * width);
      }
      kernel({packed.get(), reinterpret_cast<const char*>(wide.data()), width * kUnit, to + first, out.stride(0), rows,
              width, accumulate},
             0, count);
    }
  });
}

}  // namespace

void product_f32(const at::Tensor& out, const at::Tensor& a, const at::Tensor& w, bool accumulate, Bf16Products way) {
  if (a.dim() != 2 || w.dim() != 2 || out.dim() != 2 || a.size(1) != w.size(1) || out.size(0) != a.size(0) ||
      out.size(1) != w.size(0) || out.scalar_type() != at::kFloat || a.scalar_type() != w.scalar_type() ||
      !a.is_contiguous() || (out.numel() > 0 && out.stride(1) != 1) || (w.numel() > 0 && w.stride(1) != 1)) {
    throw Error(ErrorKind::bug, "product_f32: a " + c10::str(a.sizes()) + ", w " + c10::str(w.sizes()) + ", out " +
                                    c10::str(out.sizes()) + " do not fit or are not dense");
  }
  static const detail::Product f32_kernel = detail::f32_product_avx512();
  static const detail::Product bf16_kernel = detail::bf16_product_avx512();
  const detail::Product kernel = a.scalar_type() == at::kBFloat16 ? bf16_kernel
                                 : a.scalar_type() == at::kFloat  ? f32_kernel
                                                                  : nullptr;
  const int64_t rows = a.size(0), columns = w.size(0), item = static_cast<int64_t>(a.element_size());
  const int64_t width = a.size(1) * item;
  if (rows == 0 || columns == 0) return;
  if (a.scalar_type() == at::kBFloat16 && f32_kernel != nullptr && way == Bf16Products::widened) {
    return product_of_widened(f32_kernel, out, a, w, accumulate);
  }
  if (kernel == nullptr || width % kUnit != 0) {
    widened(out, a, w, accumulate);
    return;
  }
  const auto packed = pack_rows(static_cast<const char*>(a.const_data_ptr()), rows, width / kUnit);
  const detail::ProductArguments arguments{packed.get(),       static_cast<const char*>(w.const_data_ptr()),
                                           w.stride(0) * item, static_cast<float*>(out.mutable_data_ptr()),
                                           out.stride(0),      rows,
                                           width / kUnit,      accumulate};
  const int64_t blocks = (columns + kColumns - 1) / kColumns;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      kernel(arguments, block * kColumns, std::min(columns, (block + 1) * kColumns));
    }
  });
}

void back_product_f32(const at::Tensor& out, const at::Tensor& g, const at::Tensor& w, Bf16Products way) {
  if (g.dim() != 2 || w.dim() != 2 || out.dim() != 2 || g.size(1) != w.size(0) || out.size(0) != g.size(0) ||
      out.size(1) != w.size(1) || out.scalar_type() != at::kFloat || g.scalar_type() != w.scalar_type() ||
      !out.is_contiguous() || (g.numel() > 0 && g.stride(1) != 1) || (w.numel() > 0 && w.stride(1) != 1)) {
    throw Error(ErrorKind::bug, "back_product_f32: g " + c10::str(g.sizes()) + ", w " + c10::str(w.sizes()) + ", out " +
                                    c10::str(out.sizes()) + " do not fit or are not dense");
  }
  static const detail::BackProduct f32_kernel = detail::f32_back_product_avx512();
  static const detail::BackProduct dot_kernel = detail::bf16_back_product_avx512();
  static const detail::BackProduct wide_kernel = detail::wide_bf16_back_product_avx512();
  const detail::BackProduct bf16_kernel = way == Bf16Products::dot ? dot_kernel : wide_kernel;
  const detail::BackProduct kernel = g.scalar_type() == at::kBFloat16 ? bf16_kernel
                                     : g.scalar_type() == at::kFloat  ? f32_kernel
                                                                      : nullptr;
  if (out.numel() == 0) return;
  if (kernel == nullptr) {
    out.copy_(at::mm(g, w));
    return;
  }
  out.zero_();
  const auto item = static_cast<int64_t>(g.element_size());
  const detail::BackProductArguments arguments{static_cast<const char*>(g.const_data_ptr()),
                                               g.stride(0) * item,
                                               static_cast<const char*>(w.const_data_ptr()),
                                               w.stride(0) * item,
                                               static_cast<float*>(out.mutable_data_ptr()),
                                               out.stride(0),
                                               out.size(0),
                                               g.size(1)};
  const int64_t groups = (out.size(1) + kBackColumns - 1) / kBackColumns;
  at::parallel_for(0, groups, (groups + at::get_num_threads() - 1) / at::get_num_threads(),
                   [&](int64_t begin, int64_t end) {
                     kernel(arguments, begin * kBackColumns, std::min(out.size(1), end * kBackColumns));
                   });
}

}  // namespace pacer::nn
