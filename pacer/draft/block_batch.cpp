#include "pacer/draft/block_batch.h"

#include <algorithm>

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"

namespace pacer::draft {

at::Tensor index_tensor(const std::vector<int64_t>& values) {
  return at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kLong).clone();
}

PackedTokens host_tokens(const FeatureBatch& batch) {
  const auto dense = [](const at::Tensor& tensor, at::ScalarType dtype) {
    return tensor.defined() && tensor.dim() == 1 && tensor.is_contiguous() && device::in_host_memory(tensor) &&
           tensor.scalar_type() == dtype;
  };
  if (!dense(batch.ids, at::kLong) || !dense(batch.supervised, at::kByte)) {
    throw Error(ErrorKind::bug, "a batch of features needs ids [T] i64 and supervised [T] u8, dense on the host");
  }
  const auto count = [](const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); };
  return {{batch.ids.const_data_ptr<int64_t>(), count(batch.ids)},
          {batch.supervised.const_data_ptr<uint8_t>(), count(batch.supervised)},
          batch.starts,
          batch.sample_ids};
}

BlockBatch block_batch(const DraftConfig& config, const BlockPlan& plan, const PackedTokens& tokens) {
  std::vector<int64_t> context_rows, context_positions, ids, positions, previous;
  BlockBatch batch;
  nn::BlockLayout& layout = batch.layout;
  layout.block_size = plan.block_size;
  layout.prefix = plan.anchor;  // a block sees what lies before its anchor
  for (int64_t b = 0; b < plan.blocks();) {
    const auto sequence = static_cast<size_t>(plan.sequence[static_cast<size_t>(b)]);
    int64_t last = b;
    while (last < plan.blocks() && plan.sequence[static_cast<size_t>(last)] == static_cast<int64_t>(sequence)) ++last;
    const int64_t reach = plan.anchor[static_cast<size_t>(last - 1)];
    for (int64_t position = 0; position < reach; ++position) {
      context_rows.push_back(tokens.starts[sequence] + position);
      context_positions.push_back(position);
    }
    layout.context_starts.push_back(static_cast<int64_t>(context_rows.size()));
    layout.block_starts.push_back(last);
    for (; b < last; ++b) {
      const int64_t anchor = plan.anchor[static_cast<size_t>(b)];
      for (int64_t k = 0; k < plan.block_size; ++k) {
        const int64_t row = plan.previous_row[static_cast<size_t>(b * plan.block_size + k)];
        ids.push_back(k == 0 ? tokens.ids[static_cast<size_t>(tokens.starts[sequence] + anchor)]
                             : config.mask_token_id);
        positions.push_back(anchor + k);
        previous.push_back(tokens.ids[static_cast<size_t>(row)]);
      }
    }
  }
  batch.context_rows = index_tensor(context_rows);
  batch.context_positions = index_tensor(context_positions);
  batch.ids = index_tensor(ids);
  batch.positions = index_tensor(positions);
  batch.previous_ids = index_tensor(previous);
  return batch;
}

BlockBatch blocks_between(const BlockBatch& batch, int64_t begin, int64_t end) {
  BlockBatch part = batch;
  const int64_t first = begin * batch.layout.block_size, last = end * batch.layout.block_size;
  for (at::Tensor* rows : {&part.ids, &part.positions, &part.previous_ids}) *rows = rows->slice(0, first, last);
  for (int64_t& start : part.layout.block_starts) start = std::clamp(start, begin, end) - begin;
  const auto prefix = batch.layout.prefix.begin();
  part.layout.prefix.assign(prefix + begin, prefix + end);
  return part;
}

nn::RopeRows RopeCache::rows(const nn::RopeTable& table, const at::Tensor& positions) {
  if (positions.numel() == 0) return table.rows(positions);
  const int64_t needed = positions.max().item<int64_t>() + 1;
  if (!all_.cos.defined() || all_.cos.size(0) < needed) {
    all_ = table.rows(at::arange(std::max<int64_t>(needed, 512), at::kLong));
  }
  return {all_.cos.index_select(0, positions), all_.sin.index_select(0, positions)};
}

}  // namespace pacer::draft
