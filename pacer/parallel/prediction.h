// What a training will need on a cluster that is not here: balance, memory, bytes, seconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/parallel/gradient_reduction.h"
#include "pacer/parallel/ownership_plan.h"
#include "pacer/parallel/schedule.h"
#include "pacer/parallel/unit_weights.h"

namespace pacer::parallel {

struct PredictionInput {
  std::vector<PlanParameter> parameters;  // with their routes
  Mesh mesh;
  PlanOptions plan;
  ReductionOptions reduction;
  Unshard unshard = Unshard::broadcast;
  bool free_weights = false;
  at::ScalarType weight_dtype = at::kFloat, message_dtype = at::kFloat;  // messages are f32 in exact mode
  // Parameters that each call of the forward pass reads; empty: one call per unit.
  std::vector<std::vector<std::string>> calls;

  // Assumptions, since nothing here can measure them.
  double link_bytes_per_s = 25e9, link_latency_s = 20e-6;  // of each rank, each way
  // Of single collectives in place of link_bytes_per_s, by the names in Prediction::bytes behind the slash.
  std::map<std::string, double> collective_bytes_per_s;
  double products_per_s = 200e12;    // multiply-adds of the orthogonalisation
  double memory_bytes_per_s = 2e12;  // of AdamW and momentum
  double micro_batch_s = 0;          // forward and backward; 0: not part of the prediction
  // Messages are moved by the processors that compute (Gloo on one machine), so none hides behind the computation.
  bool messages_take_processor = false;
};

struct Prediction {
  OwnershipPlan plan;
  std::map<std::string, double> bytes;  // per rank and step, mean over the ranks, by the names of ProcessGroup::traffic
  std::map<std::string, int64_t> calls;                        // messages per step, by the same names
  double masters = 0, states = 0, weights = 0, gradients = 0;  // bytes of the rank that holds most of them together
  // copies: gradients into messages, sums of what arrives, norm, weights out of messages.
  double orthogonalise_s = 0, adamw_s = 0, copies_s = 0, link_s = 0, step_s = 0;
  OrderedJson to_json() const;
};

// Bytes and calls are those that the engine's groups count in a step that follows another, for counts of ranks and
// micro-batches that are powers of two. step_s: micro-batches or messages, whichever takes longer (both, where messages
// take the processor), copies, and the update of the rank with most to do. Throws as make_ownership_plan.
Prediction predict(const PredictionInput& input);

// The schedule of such a training, and the names of its units.
struct PlannedSchedule {
  ScheduleInput input;
  std::vector<std::string> units;
};
PlannedSchedule planned_schedule(const PredictionInput& input);

// Multiply-adds of five iterations of one matrix in the direct form, which is what products_per_s counts, whatever form
// is computed: 5 s^2 (2 b + s), s the smaller and b the larger side.
double orthogonalise_products(double rows, double columns);

}  // namespace pacer::parallel
