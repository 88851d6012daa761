// A training step on a mesh: the same result whatever the mesh is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/parallel/gradient_reduction.h"
#include "pacer/parallel/schedule.h"
#include "pacer/parallel/unit_update.h"
#include "pacer/parallel/unit_weights.h"

namespace pacer::parallel {

using Tensors = std::vector<at::Tensor>;

struct EngineParameter {
  std::string name;
  at::Tensor
      weight;  // what the forward reads: a leaf that requires a gradient, alone in its storage; all on one device
  Route route = Route::muon;
  bool replicated = false;                    // adamw only: every rank keeps and updates the whole
  at::ScalarType message_dtype = at::kFloat;  // of gradients on their way; f32 in exact mode
  std::string unit{};                         // parameters that travel together; "": those of a layer, others alone
  at::Tensor initial{};                       // f32 values in place of the weight's own, which may be rounded
  double rate = 1;                            // factor on the learning rate
  std::optional<double> weight_decay{};       // in place of the route's
  optim::MatrixLayout matrices{};             // of route muon: fused or stacked matrices
};

// A part of the model that runs between two points where weights may come and go.
struct Segment {
  std::string name;
  std::vector<std::string> parameters;  // that it reads
  // Any inputs and outputs; everything that needs a gradient must come in through `inputs` or the parameters.
  std::function<Tensors(const Tensors& inputs)> forward;
  bool recompute = false;  // nothing is kept for the backward pass, which runs the forward again
};

// Mistakes that the correctness gate must find: each is made on one rank. `none` in every training.
enum class Fault {
  none,
  reduce_left_out,
  other_owner,
  lost_micro_batch,
  second_stage_skipped,
  counted_twice,
  stale_publish
};

struct EngineOptions {
  Mesh mesh;
  ReductionOptions reduction;
  UpdateOptions update;
  PlanOptions plan;
  Unshard unshard = Unshard::broadcast;
  bool free_weights = false;  // whole weights only around their use (FSDP); else they stay (DDP)
  bool overlap = true;        // false: every message is waited for at once; the bits are the same
  double clip = 0;            // largest norm of all gradients together; 0: no clipping
  Fault fault = Fault::none;
};

struct StepReport {
  // 0-dimensional tensors on the device of the masters. norm: f32, before clipping; coefficient: f32, what gradients
  // were multiplied with; clipped, found_inf: bool.
  at::Tensor norm, coefficient, clipped, found_inf;
  double loss = 0;           // sum over the leaves in their order, f64, divided by `count`
  int64_t count = 0;         // N
  bool updated = true;       // false: the norm was not finite, or N was 0; nothing was changed
  std::string not_finite{};  // a parameter whose gradient was not, "" when all were
};

// The order of calls, on every rank the same:
//   per micro-batch: run(0 .. calls - 1), each at most once and in order, then backward(loss, count)
//   after the last micro-batch: step(rates), or abandon() to forget the gradients
// Calls that are left out count as skipped: their parameters have no gradient on this rank. Anything else throws
// Error{usage}, on every mesh alike: a step without its micro-batches, a second step, run() or backward() in between.
//
// The gradient is the sum over all leaves (micro-batches of all ranks) of what backward gives, times 1 / N, N the sum
// of all counts. A parameter whose gradient is present in any leaf is updated, with +0 for the others; one that is
// present in none keeps weight, momentum and counter.
class Engine {
 public:
  // calls: indices of segments in the order of the forward pass; a segment may be called twice. Without segments the
  // caller runs its own forward and backward over the weights, between acquire() and finish_backward().
  // Weights become those of rank 0. Everything but counts and losses is computed and kept on the device of the weights.
  // Throws Error{usage} on every rank when they disagree about the plan.
  Engine(World& world, std::vector<EngineParameter> parameters, std::vector<Segment> segments,
         std::vector<size_t> calls, const EngineOptions& options);
  ~Engine();

  // Outputs are leaves of autograd; inputs of later calls, or the loss, are made of them.
  Tensors run(size_t call, const Tensors& inputs);
  // loss: a scalar, the sum over this micro-batch, made of outputs of run(). count: what it is a sum over.
  void backward(const at::Tensor& loss, int64_t count);

  // In place of run() and backward() where this rank has nothing for a micro-batch that other ranks have.
  void skip_micro_batch();

  void acquire();  // without segments: all weights are here when it returns, until finish_backward()
  // Without segments: the gradients are in .grad of the weights, and are taken from there.
  void finish_backward(double loss, int64_t count);

  StepReport step(const StepRates& rates);
  void abandon();

  const OwnershipPlan& plan() const { return plan_; }
  std::string text() const;  // all that ranks must agree on: plan, layout, schedule, options
  std::string digest() const;
  const EngineOptions& options() const { return options_; }
  MeshGroups& groups() { return groups_; }

  // Names and kinds of everything that a checkpoint holds: for each parameter NAME its master "NAME", and
  // "NAME.momentum" or "NAME.exp_avg" and "NAME.exp_avg_sq"; the counters apart.
  struct StateTensor {
    std::string name;
    std::string parameter;
    enum class Kind { master, momentum, first, second } kind;
    std::vector<int64_t> shape;
    at::ScalarType dtype;
    Placement placement;
    Owner owner;
  };
  std::vector<StateTensor> state_tensors() const;
  // The whole tensor on every rank. All ranks call it for the same name.
  at::Tensor whole(const StateTensor& tensor);
  // This rank's run of it: elements begin .. begin + tensor.numel() - 1, shares memory; nothing when it holds none.
  struct HeldRun {
    int64_t begin;
    at::Tensor values;
  };
  std::optional<HeldRun> held(const StateTensor& tensor);
  std::map<std::string, int64_t> counters();  // updates by parameter, on every rank
  void set_counters(const std::map<std::string, int64_t>& counters);
  // After masters were written through held(): makes the weights follow. All ranks call it.
  void publish_all();
  // Waits for what is on its way between two steps, which otherwise goes on behind the next forward pass.
  void settle();
  // The live weights by name, with every message waited for.
  std::map<std::string, at::Tensor> weights();
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

 private:
  struct UnitState;
  struct Tape;
  void make_units(const std::vector<EngineParameter>& parameters, const std::vector<Segment>& segments);
  void share_initial_values(std::vector<EngineParameter>& parameters);
  void follow(const std::vector<ScheduleEntry>& entries, const std::function<void(size_t)>& compute);
  void begin_reduce(size_t unit);
  void drain_reductions();
  void close_micro_batch(double loss, int64_t count);
  void require_state(bool fine, const std::string& what) const;
  void publish(UnitState& unit, bool stale);
  at::Tensor square_sums();
  std::string first_not_finite(const at::Tensor& square_sums) const;
  UnitState& unit_of(const StateTensor& tensor, size_t& place);

  EngineOptions options_;
  MeshGroups groups_;
  c10::Device device_;
  OwnershipPlan plan_;
  std::vector<Segment> segments_;
  std::vector<size_t> calls_;
  Schedule schedule_;
  std::vector<std::unique_ptr<UnitState>> units_;
  std::unique_ptr<Tape> tape_;
  std::vector<size_t> reducing_;  // units whose messages are under way, oldest first
  int64_t micro_batch_ = 0, steps_ = 0, blocks_ = 0;
  at::Tensor counts_;  // int64, in host memory: N, then per parameter the leaves that had a gradient
  at::Tensor losses_;  // f64 by leaf, in host memory
};

}  // namespace pacer::parallel
