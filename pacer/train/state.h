// Where a run stands after an optimizer step: everything besides weights and moments that the next step depends on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pacer/base/json.h"
#include "pacer/draft/features.h"

namespace pacer::train {

// No times in here: two runs that did the same work have the same state, byte for byte.
struct TrainState {
  int64_t step = 0;  // optimizer steps done; with the plan this is also the data position and the learning rate
  int64_t rows = 0, tokens = 0, blocks = 0;  // trained on so far

  // Of the steps since the last line of metrics.
  draft::LossTerms terms;
  int64_t terms_steps = 0;

  std::optional<double> first_loss, last_loss;  // of the first and the newest line of metrics
  std::optional<double> validation_tau;         // newest
  std::optional<double> best_tau;
  int64_t best_step = 0;  // 0: none

  Json to_json() const;
  // Throws Error{format} naming the place and the field.
  static TrainState from_json(const Json& json, const std::string& place);
};

}  // namespace pacer::train
