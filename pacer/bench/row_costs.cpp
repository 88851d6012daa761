#include "pacer/bench/row_costs.h"

#include <vector>

#include <c10/core/InferenceMode.h>

#include "pacer/base/clocks.h"
#include "pacer/bench/stopclock.h"
#include "pacer/target/exact_rows.h"

namespace pacer::bench {

void RowCosts::add_to(OrderedJson& work) const {
  work["one_row_cpu_ms"] = one_cpu_s * 1e3;
  work["block_rows"] = rows;
  work["block_rows_cpu_ms"] = many_cpu_s * 1e3;
  work["block_rows_over_one_row"] = many_cpu_s / one_cpu_s;
}

RowCosts row_costs(const target::Target& target, int64_t context, int64_t rows) {
  constexpr int kRounds = 15;
  const c10::InferenceMode inference;
  const auto cache = target.new_cache(context + rows);
  target::forward_exact(target, {std::vector<int64_t>(static_cast<size_t>(context), 1)}, {}, {cache.get()});
  const auto seconds = [&](int64_t count) {
    const auto batch = target::TokenBatch::single(std::vector<int64_t>(static_cast<size_t>(count), 1), context);
    const Stopwatch watch;
    target.logits(target.forward(batch, {}, {cache.get()}).last);
    const double cpu = watch.cpu();
    cache->crop(context);
    return cpu;
  };
  std::vector<double> one, many;
  for (int i = 0; i < kRounds; ++i) {  // in turn: a machine that slows down slows both
    one.push_back(seconds(1));
    many.push_back(seconds(rows));
  }
  return {median(one), median(many), rows};
}

}  // namespace pacer::bench
