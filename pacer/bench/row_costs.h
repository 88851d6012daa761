// What several rows cost a target beside one: the price of verifying drafts.
#pragma once

#include <cstdint>

#include "pacer/base/json.h"
#include "pacer/target/target.h"

namespace pacer::bench {

struct RowCosts {
  double one_cpu_s = 0, many_cpu_s = 0;
  int64_t rows = 0;  // of many
  // {"one_row_cpu_ms", "block_rows", "block_rows_cpu_ms", "block_rows_over_one_row"}
  void add_to(OrderedJson& work) const;
};

// One and `rows` rows through target and head behind a context of `context` tokens, in turn; medians of some rounds.
RowCosts row_costs(const target::Target& target, int64_t context, int64_t rows);

}  // namespace pacer::bench
