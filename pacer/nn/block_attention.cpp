#include "pacer/nn/block_attention.h"

#include <algorithm>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/block_attention_rows.h"
#include "pacer/nn/plain.h"

namespace pacer::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kContextTile = 512;
constexpr int64_t kScoreBytes = 4 << 20;  // scores of a chunk of blocks stay in the caches between product and softmax

// [N, heads, D] any dtype -> [kv_heads, N * groups, D] f32: the query heads that share a kv head are rows of one
// matrix.
at::Tensor by_kv_head(const at::Tensor& x, int64_t kv_heads) {
  const int64_t rows = x.size(0), groups = x.size(1) / kv_heads, width = x.size(2);
  return x.detach()
      .view({rows, kv_heads, groups, width})
      .permute({1, 0, 2, 3})
      .to(at::kFloat)
      .contiguous()
      .view({kv_heads, rows * groups, width});
}

at::Tensor by_row(const at::Tensor& x, int64_t groups, at::ScalarType dtype) {
  const int64_t kv_heads = x.size(0), rows = x.size(1) / groups, width = x.size(2);
  return x.view({kv_heads, rows, groups, width})
      .permute({1, 0, 2, 3})
      .to(dtype)
      .contiguous()
      .view({rows, kv_heads * groups, width});
}

struct Sizes {
  int64_t kv_heads, groups, width, slots;  // slots: B * K
  int64_t rows() const { return slots * groups; }
};

// Runs body(first block, last block, first context row, last context row, start of the tile in its sequence): chunks of
// blocks of one sequence against context tiles that the last block of the chunk reaches, each tile with the blocks that
// reach it.
template <typename Body>
void for_tiles(const BlockLayout& layout, const Sizes& sizes, const Body& body) {
  for (size_t s = 0; s + 1 < layout.block_starts.size(); ++s) {
    const int64_t context = layout.context_starts[s], last = layout.block_starts[s + 1];
    const int64_t per_block = sizes.kv_heads * layout.block_size * sizes.groups * kContextTile * 4;
    const int64_t chunk = std::max<int64_t>(1, kScoreBytes / per_block);
    for (int64_t first = layout.block_starts[s]; first < last; first += chunk) {
      const int64_t end = std::min(first + chunk, last);
      const int64_t reach = layout.prefix[static_cast<size_t>(end - 1)];
      for (int64_t tile = 0; tile < reach; tile += kContextTile) {
        const auto begin = std::upper_bound(layout.prefix.begin() + first, layout.prefix.begin() + end, tile);
        body(begin - layout.prefix.begin(), end, context + tile, context + std::min(tile + kContextTile, reach), tile);
      }
    }
  }
}

// The columns [begin, end) of a tile that a row sees.
struct Visible {
  int64_t begin, end;
};
Visible visible(const BlockLayout& layout, int64_t block, int64_t slot, int64_t tile, int64_t columns,
                std::optional<int64_t> window) {
  const int64_t prefix = layout.prefix[static_cast<size_t>(block)];
  const int64_t oldest = window ? std::max<int64_t>(0, prefix + slot - (*window - 1)) : 0;
  return {std::clamp<int64_t>(oldest - tile, 0, columns), std::clamp<int64_t>(prefix - tile, 0, columns)};
}

// Calls body(kv head, row of the head, row of the chunk) for all rows of blocks [first, last).
template <typename Body>
void for_rows(const BlockLayout& layout, const Sizes& sizes, int64_t first, int64_t last, const Body& body) {
  const int64_t per_head = (last - first) * layout.block_size * sizes.groups;
  const int64_t offset = first * layout.block_size * sizes.groups;
  at::parallel_for(0, sizes.kv_heads * per_head, 32, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i / per_head, offset + i % per_head, i);
  });
}

template <typename Body>
void for_own_tiles(const BlockLayout& layout, const Sizes& sizes, const Body& body) {
  at::parallel_for(0, sizes.kv_heads * layout.blocks(), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / layout.blocks(), block = i % layout.blocks();
      body(head * sizes.rows() + block * layout.block_size * sizes.groups,
           head * sizes.slots + block * layout.block_size);
    }
  });
}

struct Inputs {
  at::Tensor q, k_block, v_block, k_context, v_context;  // f32, by kv head
};

detail::OwnTile own_tile(const Inputs& in, const BlockLayout& layout, const Sizes& sizes, int64_t row, int64_t slot,
                         float scale, bool causal) {
  const int64_t width = sizes.width;
  return {in.q.const_data_ptr<float>() + row * width,
          in.k_block.const_data_ptr<float>() + slot * width,
          in.v_block.const_data_ptr<float>() + slot * width,
          layout.block_size,
          sizes.groups,
          width,
          scale,
          causal};
}

struct Result {
  at::Tensor out;      // [kv_heads, rows, D] f32
  at::Tensor log_sum;  // [kv_heads, rows] f32
};

Result forward_f32(const Inputs& in, const BlockLayout& layout, const Sizes& sizes, float scale,
                   std::optional<int64_t> window) {
  const detail::BlockRowKernels& kernels = detail::block_row_kernels();
  const int64_t rows = sizes.rows(), width = sizes.width, per_slot = layout.block_size * sizes.groups;
  const at::Tensor out = at::zeros({sizes.kv_heads, rows, width}, at::kFloat);
  const at::Tensor max = at::full({sizes.kv_heads, rows}, -3.0e38, at::kFloat);
  const at::Tensor sum = at::zeros({sizes.kv_heads, rows}, at::kFloat);
  float *out_data = out.mutable_data_ptr<float>(), *max_data = max.mutable_data_ptr<float>();
  float* sum_data = sum.mutable_data_ptr<float>();

  for_tiles(layout, sizes, [&](int64_t first, int64_t last, int64_t from, int64_t to, int64_t tile) {
    const int64_t columns = to - from, begin = first * per_slot, end = last * per_slot;
    const at::Tensor scores = at::bmm(in.q.slice(1, begin, end), in.k_context.slice(1, from, to).transpose(1, 2));
    float* const score_data = scores.mutable_data_ptr<float>();
    for_rows(layout, sizes, first, last, [&](int64_t head, int64_t row, int64_t at) {
      const Visible seen =
          visible(layout, row / per_slot, row / sizes.groups % layout.block_size, tile, columns, window);
      const int64_t place = head * rows + row;
      const float factor = kernels.prefix(
          {score_data + at * columns, columns, seen.begin, seen.end, scale, max_data + place, sum_data + place});
      if (tile > 0 && factor != 1.0f) {
        for (int64_t i = 0; i < width; ++i) out_data[place * width + i] *= factor;
      }
    });
    at::Tensor part = out.slice(1, begin, end);
    if (tile == 0) {
      at::bmm_out(part, scores, in.v_context.slice(1, from, to));
    } else {
      part.baddbmm_(scores, in.v_context.slice(1, from, to));
    }
  });
  for_own_tiles(layout, sizes, [&](int64_t row, int64_t slot) {
    kernels.own(own_tile(in, layout, sizes, row, slot, scale, window.has_value()),
                {out_data + row * width, max_data + row, sum_data + row});
  });
  return {out, max};
}

// With P the probabilities and delta = rowsum(dO * O):
//   dV = P^T dO,  dS = P * (dO V^T - delta) * scale,  dQ = dS K,  dK = dS^T Q.
Inputs backward_f32(const Inputs& in, const Result& result, const at::Tensor& d_out, const BlockLayout& layout,
                    const Sizes& sizes, float scale, std::optional<int64_t> window) {
  const detail::BlockRowKernels& kernels = detail::block_row_kernels();
  const int64_t rows = sizes.rows(), width = sizes.width, per_slot = layout.block_size * sizes.groups;
  Inputs d{at::zeros_like(in.q), at::zeros_like(in.k_block), at::zeros_like(in.v_block), at::zeros_like(in.k_context),
           at::zeros_like(in.v_context)};
  const at::Tensor delta = at::empty({sizes.kv_heads, rows}, at::kFloat);
  float* const delta_data = delta.mutable_data_ptr<float>();
  const float *d_out_data = d_out.const_data_ptr<float>(), *out_data = result.out.const_data_ptr<float>();
  const float* const log_sum_data = result.log_sum.const_data_ptr<float>();
  at::parallel_for(0, sizes.kv_heads * rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      delta_data[row] = kernels.dot(d_out_data + row * width, out_data + row * width, width);
    }
  });

  for_tiles(layout, sizes, [&](int64_t first, int64_t last, int64_t from, int64_t to, int64_t tile) {
    const int64_t columns = to - from, begin = first * per_slot, end = last * per_slot;
    const at::Tensor q = in.q.slice(1, begin, end), k = in.k_context.slice(1, from, to);
    const at::Tensor v = in.v_context.slice(1, from, to), d_rows = d_out.slice(1, begin, end);
    const at::Tensor p = at::bmm(q, k.transpose(1, 2)), d_scores = at::bmm(d_rows, v.transpose(1, 2));
    float *p_data = p.mutable_data_ptr<float>(), *d_data = d_scores.mutable_data_ptr<float>();
    for_rows(layout, sizes, first, last, [&](int64_t head, int64_t row, int64_t at) {
      const Visible seen =
          visible(layout, row / per_slot, row / sizes.groups % layout.block_size, tile, columns, window);
      const int64_t place = head * rows + row;
      kernels.prefix_backward({p_data + at * columns, d_data + at * columns, columns, seen.begin, seen.end, scale,
                               log_sum_data[place], delta_data[place]});
    });
    d.v_context.slice(1, from, to).baddbmm_(p.transpose(1, 2), d_rows);
    d.k_context.slice(1, from, to).baddbmm_(d_scores.transpose(1, 2), q);
    d.q.slice(1, begin, end).baddbmm_(d_scores, k);
  });
  for_own_tiles(layout, sizes, [&](int64_t row, int64_t slot) {
    kernels.own_backward(
        own_tile(in, layout, sizes, row, slot, scale, window.has_value()),
        {d_out_data + row * width, log_sum_data + row, delta_data + row, d.q.mutable_data_ptr<float>() + row * width,
         d.k_block.mutable_data_ptr<float>() + slot * width, d.v_block.mutable_data_ptr<float>() + slot * width});
  });
  return d;
}

Inputs widened(const at::Tensor& q, const at::Tensor& k_block, const at::Tensor& v_block, const at::Tensor& k_context,
               const at::Tensor& v_context, int64_t kv_heads) {
  return {by_kv_head(q, kv_heads), by_kv_head(k_block, kv_heads), by_kv_head(v_block, kv_heads),
          by_kv_head(k_context, kv_heads), by_kv_head(v_context, kv_heads)};
}

Sizes sizes_of(const at::Tensor& q, const at::Tensor& k_block) {
  return {k_block.size(1), q.size(1) / k_block.size(1), q.size(2), q.size(0)};
}

class BlockAttention : public torch::autograd::Function<BlockAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k_block,
                            const at::Tensor& v_block, const at::Tensor& k_context, const at::Tensor& v_context,
                            const BlockLayout& layout, double scale, std::optional<int64_t> window) {
    const Sizes sizes = sizes_of(q, k_block);
    const Result result = forward_f32(widened(q, k_block, v_block, k_context, v_context, sizes.kv_heads), layout, sizes,
                                      static_cast<float>(scale), window);
    const at::Tensor out = by_row(result.out, sizes.groups, q.scalar_type());
    context->save_for_backward({q, k_block, v_block, k_context, v_context, out, result.log_sum});
    context->saved_data["context_starts"] = layout.context_starts;
    context->saved_data["block_starts"] = layout.block_starts;
    context->saved_data["prefix"] = layout.prefix;
    context->saved_data["block_size"] = layout.block_size;
    context->saved_data["scale"] = scale;
    context->saved_data["window"] = window.value_or(0);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const BlockLayout layout{data["context_starts"].toIntVector(), data["block_starts"].toIntVector(),
                             data["prefix"].toIntVector(), data["block_size"].toInt()};
    const int64_t window = data["window"].toInt();
    const Sizes sizes = sizes_of(saved[0], saved[1]);
    const Inputs in = widened(saved[0], saved[1], saved[2], saved[3], saved[4], sizes.kv_heads);
    const Inputs d = backward_f32(in, {by_kv_head(saved[5], sizes.kv_heads), saved[6]},
                                  by_kv_head(grad_outputs[0].contiguous(), sizes.kv_heads), layout, sizes,
                                  static_cast<float>(data["scale"].toDouble()),
                                  window == 0 ? std::nullopt : std::optional<int64_t>(window));
    const auto narrow = [&](const at::Tensor& x, size_t like) {
      return by_row(x, saved[like].size(1) / sizes.kv_heads, saved[like].scalar_type());
    };
    return {narrow(d.q, 0),         narrow(d.k_block, 1), narrow(d.v_block, 2), narrow(d.k_context, 3),
            narrow(d.v_context, 4), at::Tensor(),         at::Tensor(),         at::Tensor()};
  }
};

void require(bool fits, const std::string& what) {
  if (!fits) throw Error(ErrorKind::bug, "block_attention: " + what);
}

void check(const at::Tensor& q, const at::Tensor& k_block, const at::Tensor& v_block, const at::Tensor& k_context,
           const at::Tensor& v_context, const BlockLayout& layout) {
  require(q.dim() == 3 && k_block.dim() == 3 && k_context.dim() == 3 && k_block.sizes() == v_block.sizes() &&
              k_context.sizes() == v_context.sizes() && q.size(0) == k_block.size(0) &&
              k_block.size(1) == k_context.size(1) && q.size(2) == k_block.size(2) && q.size(2) == k_context.size(2) &&
              k_block.size(1) > 0 && q.size(1) % k_block.size(1) == 0,
          "q " + c10::str(q.sizes()) + ", block keys " + c10::str(k_block.sizes()) + ", context keys " +
              c10::str(k_context.sizes()) + " do not fit");
  require(q.size(0) == layout.blocks() * layout.block_size &&
              layout.block_starts.size() == layout.context_starts.size() && layout.block_starts.front() == 0 &&
              layout.block_starts.back() == layout.blocks() && layout.context_starts.front() == 0 &&
              layout.context_starts.back() == k_context.size(0),
          "the layout has " + std::to_string(layout.blocks()) + " blocks of " + std::to_string(layout.block_size) +
              " and " + std::to_string(layout.context_starts.back()) + " context rows, q " + c10::str(q.sizes()) +
              ", context " + c10::str(k_context.sizes()));
  for (size_t s = 0; s + 1 < layout.block_starts.size(); ++s) {
    int64_t before = 0;
    const int64_t rows = layout.context_starts[s + 1] - layout.context_starts[s];
    for (int64_t b = layout.block_starts[s]; b < layout.block_starts[s + 1]; ++b) {
      const int64_t prefix = layout.prefix[static_cast<size_t>(b)];
      require(prefix >= before && prefix <= rows, "prefix " + std::to_string(prefix) + " of block " +
                                                      std::to_string(b) + " must ascend and fit into " +
                                                      std::to_string(rows) + " context rows");
      before = prefix;
    }
  }
}

}  // namespace

at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k_block, const at::Tensor& v_block,
                           const at::Tensor& k_context, const at::Tensor& v_context, const BlockLayout& layout,
                           double scale, std::optional<int64_t> window) {
  check(q, k_block, v_block, k_context, v_context, layout);
  if (!device::own_attention(q)) {
    return plain::block_attention(q, k_block, v_block, k_context, v_context, layout, scale, window);
  }
  return BlockAttention::apply(q.contiguous(), k_block.contiguous(), v_block.contiguous(), k_context.contiguous(),
                               v_context.contiguous(), layout, scale, window);
}

}  // namespace pacer::nn
