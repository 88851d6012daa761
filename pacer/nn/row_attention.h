// Attention of a few query rows over the cache of their sequence.
#pragma once

#include <cstdint>

#include "pacer/nn/key_value_panels.h"
#include "pacer/nn/row_kernels.h"

namespace pacer::nn {

// Row i stands at position first + i and sees positions [max(0, first + i - reach + 1), first + i], whose keys and
// values are in the cache already. Query head h reads key head h / group.
//
//   q, out   [rows, heads, D]; may not overlap
//   reach    positions that a row sees, its own included
//
// One key head of the cache: heads `group` * head .. + group - 1 of every row. A row has the same bits alone and among
// others: scores and sums run over absolute positions in one order, hidden ones count as exact zeros.
template <typename T>
void row_attention(const T* q, int64_t rows, int64_t heads, const KeyValuePanels& cache, int64_t head, int64_t first,
                   int64_t reach, T* out, const RowKernels<T>& kernels = row_kernels<T>());

}  // namespace pacer::nn
