#include "pacer/parallel/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "pacer/base/error.h"
#include "pacer/device/device_memory.h"
#include "pacer/optim/exact_norm.h"
#include "pacer/parallel/engine_state.h"

namespace pacer::parallel {

void Engine::require_state(bool fine, const std::string& what) const {
  if (fine) return;
  throw Error(
      ErrorKind::usage, what,
      "a step is: for each micro-batch run() the calls in their order and backward(); then step() or abandon()");
}

void Engine::follow(const std::vector<ScheduleEntry>& entries, const std::function<void(size_t)>& compute) {
  for (const ScheduleEntry& entry : entries) {
    switch (entry.action) {
      case Action::start_acquire:
        units_[entry.index]->weights.start_acquire();
        if (!options_.overlap) units_[entry.index]->weights.wait_acquire();
        break;
      case Action::wait_acquire:
        units_[entry.index]->weights.wait_acquire();
        break;
      case Action::compute:
        if (compute) compute(entry.index);
        break;
      case Action::release:
        units_[entry.index]->weights.release();
        break;
      case Action::reduce:
        begin_reduce(entry.index);
        break;
    }
  }
}

Tensors Engine::run(size_t call, const Tensors& inputs) {
  require_state(call < calls_.size(),
                "run(" + std::to_string(call) + ") of " + std::to_string(calls_.size()) + " calls");
  require_state(micro_batch_ < options_.reduction.micro_batches,
                "run() after the last micro-batch and before the step");
  require_state(call >= tape_->next, "run(" + std::to_string(call) + ") after a later call of this micro-batch");
  groups_.world.activity()->in_step = true;
  // What is skipped is still acquired: other ranks may be running it.
  for (; tape_->next < call; ++tape_->next) follow(schedule_.forward[tape_->next], {});
  Tape::Record record{.inputs = inputs, .outputs = {}, .leaves = {}};
  follow(schedule_.forward[call], [&](size_t) {
    const Segment& segment = segments_[calls_[call]];
    if (segment.recompute) {
      const at::NoGradGuard no_graph;
      for (const at::Tensor& output : segment.forward(inputs)) {
        record.leaves.push_back(output.detach().requires_grad_(at::isFloatingType(output.scalar_type())));
      }
    } else {
      record.outputs = segment.forward(inputs);
      for (const at::Tensor& output : record.outputs) {
        record.leaves.push_back(output.detach().requires_grad_(output.requires_grad()));
      }
    }
  });
  ++tape_->next;
  tape_->records[call] = record;
  return record.leaves;
}

void Engine::backward(const at::Tensor& loss, int64_t count) {
  require_state(tape_->next > 0, "backward() before any run()");
  require_state(loss.dim() == 0, "the loss is no scalar");
  for (; tape_->next < calls_.size(); ++tape_->next) follow(schedule_.forward[tape_->next], {});
  const double value = loss.item<double>();
  if (loss.requires_grad() && loss.grad_fn() != nullptr) {
    torch::autograd::backward({loss}, {});
  } else if (loss.requires_grad()) {
    loss.mutable_grad() = at::ones_like(loss.detach());  // itself an output of run()
  }
  for (size_t call = calls_.size(); call-- > 0;) {
    follow(schedule_.backward[call], [&](size_t index) {
      auto record = std::exchange(tape_->records[index], std::nullopt);
      if (!record) return;
      if (segments_[calls_[index]].recompute) record->outputs = segments_[calls_[index]].forward(record->inputs);
      Tensors outputs, gradients;
      for (size_t i = 0; i < record->outputs.size(); ++i) {
        if (!record->outputs[i].requires_grad() || !record->leaves[i].grad().defined()) continue;
        outputs.push_back(record->outputs[i]);
        gradients.push_back(record->leaves[i].grad());
      }
      if (!outputs.empty()) torch::autograd::backward(outputs, gradients);
    });
  }
  close_micro_batch(value, count);
}

void Engine::skip_micro_batch() {
  require_state(tape_->next == 0, "skip_micro_batch() in the middle of one");
  if (calls_.empty()) {
    acquire();
    return finish_backward(0, 0);
  }
  for (const auto& entries : schedule_.forward) follow(entries, {});
  for (size_t call = calls_.size(); call-- > 0;) follow(schedule_.backward[call], {});
  close_micro_batch(0, 0);
}

void Engine::acquire() {
  require_state(calls_.empty(), "acquire() of an engine with segments, which acquires by itself");
  for (const auto& unit : units_) unit->weights.start_acquire();
  for (const auto& unit : units_) unit->weights.wait_acquire();
}

void Engine::finish_backward(double loss, int64_t count) {
  require_state(calls_.empty(), "finish_backward() of an engine with segments: call backward()");
  close_micro_batch(loss, count);
  for (const auto& unit : units_) unit->weights.release();
}

void Engine::begin_reduce(size_t index) {
  UnitState& unit = *units_[index];
  std::vector<at::Tensor> gradients;
  for (size_t place = 0; place < unit.indices.size(); ++place) {
    at::Tensor weight = unit.weights.live(place);
    const at::Tensor gradient = std::exchange(weight.mutable_grad(), at::Tensor());
    if (gradient.defined()) counts_[1 + static_cast<int64_t>(unit.indices[place])] += 1;
    const bool faulty = groups_.world.rank() == 1 && ((options_.fault == Fault::reduce_left_out && index == 0) ||
                                                      (options_.fault == Fault::lost_micro_batch && micro_batch_ == 0));
    gradients.push_back(faulty ? at::Tensor() : gradient);
  }
  if (options_.fault == Fault::second_stage_skipped && groups_.world.rank() == 1) unit.reduction.ignore_other_rows();
  unit.reduction.start(micro_batch_, gradients);
  reducing_.push_back(index);
  if (!options_.overlap) return drain_reductions();
  if (groups_.mesh.shard == 1) unit.reduction.advance();  // nothing to wait for in a row of one
  // Three units are on their way: one in its row, one over the rows, one arriving.
  if (reducing_.size() > 1) units_[reducing_[reducing_.size() - 2]]->reduction.advance();
  if (reducing_.size() > 2) {
    units_[reducing_.front()]->reduction.finish();
    reducing_.erase(reducing_.begin());
  }
}

void Engine::drain_reductions() {
  for (const size_t unit : reducing_) units_[unit]->reduction.advance();
  for (const size_t unit : reducing_) units_[unit]->reduction.finish();
  reducing_.clear();
}

void Engine::close_micro_batch(double loss, int64_t count) {
  require_state(micro_batch_ < options_.reduction.micro_batches,
                "a backward pass after the last micro-batch and before the step");
  follow(schedule_.rest, {});
  drain_reductions();
  losses_[groups_.data_rank * options_.reduction.micro_batches + micro_batch_] = loss;
  counts_[0] += count;
  ++micro_batch_;
  tape_->next = 0;
  tape_->records.assign(calls_.size(), std::nullopt);
}

// Of the blocks of all gradients, summed up over the ranks.
at::Tensor Engine::square_sums() {
  at::Tensor blocks = at::zeros({blocks_}, at::TensorOptions().dtype(at::kFloat).device(device_));
  // What every row holds is counted by the first one; here the second row counts its first part, too.
  const bool twice = options_.fault == Fault::counted_twice && groups_.at == Coordinate{1, 0, 0};
  for (const auto& unit : units_) unit->update.block_squares(blocks, unit->first_block, twice);
  groups_.world.all().sum(blocks, "norm").wait();
  return blocks;
}

std::string Engine::first_not_finite(const at::Tensor& square_sums) const {
  const at::Tensor blocks = device::to_host(square_sums);
  const float* sums = blocks.const_data_ptr<float>();
  const int64_t bad = std::find_if_not(sums, sums + blocks_, [](float sum) { return std::isfinite(sum); }) - sums;
  std::string name;
  for (const auto& unit : units_) {
    for (size_t place = 0; bad < blocks_ && place < unit->first_block.size(); ++place) {
      if (unit->first_block[place] <= bad) name = unit->layout.parameters[place].name;  // they ascend
    }
  }
  return name;
}

StepReport Engine::step(const StepRates& rates) {
  require_state(micro_batch_ == options_.reduction.micro_batches,
                "step() after " + std::to_string(micro_batch_) + " of " +
                    std::to_string(options_.reduction.micro_batches) + " micro-batches");
  groups_.world.all().sum(counts_, "counts").wait();
  groups_.world.all().sum_exact(losses_, "losses").wait();
  StepReport report;
  report.count = counts_[0].item<int64_t>();
  for (int64_t leaf = 0; leaf < losses_.numel(); ++leaf) report.loss += losses_[leaf].item<double>();
  if (report.count > 0) report.loss /= static_cast<double>(report.count);
  const auto scale = static_cast<float>(report.count > 0 ? 1.0 / static_cast<double>(report.count) : 0.0);
  for (const auto& unit : units_) unit->update.take_gradients(unit->reduction.take(), scale);

  const at::Tensor squares = square_sums();
  report.norm = optim::tree_sum(squares).sqrt();
  report.found_inf = at::isfinite(report.norm).logical_not();
  report.coefficient =
      options_.clip > 0 ? at::clamp_max(options_.clip / (report.norm + 1e-6), 1.0) : at::ones_like(report.norm);
  report.clipped = report.found_inf.logical_not().logical_and(report.coefficient < 1.0);
  const bool finite = !report.found_inf.item<bool>();  // the host waits for the device here
  if (!finite) report.not_finite = first_not_finite(squares);
  report.updated = report.count > 0 && finite;
  const int64_t* present = counts_.const_data_ptr<int64_t>() + 1;
  for (size_t index = 0; index < units_.size(); ++index) {
    UnitState& unit = *units_[index];
    if (!report.updated) {
      unit.update.drop_gradients();
      continue;
    }
    std::vector<int64_t> unit_present;
    for (const size_t i : unit.indices) unit_present.push_back(present[i]);
    unit.update.update(unit_present, report.coefficient, rates);
    publish(unit, index == 0 && options_.fault == Fault::stale_publish && groups_.world.rank() == 1);
  }
  steps_ += report.updated;
  groups_.world.activity()->step = steps_;
  groups_.world.activity()->in_step = false;
  micro_batch_ = 0;
  counts_.zero_();
  losses_.zero_();
  return report;
}

void Engine::publish(UnitState& unit, bool stale) {
  unit.weights.finish_publish();
  for (const HeldPart& part : unit.update.parts()) {
    switch (unit.layout.parameters[part.parameter].placement) {
      case Placement::owner:
        unit.weights.owned(part.parameter).copy_(part.master);
        break;
      case Placement::sharded:
        unit.weights.chunk(part.parameter).copy_(part.master);
        break;
      case Placement::replicated:
        unit.weights.live(part.parameter).variable_data().view({-1}).copy_(part.master);
        break;
    }
  }
  unit.weights.start_publish();
  if (stale) unit.weights.keep_stale();
  if (options_.overlap) return;
  unit.weights.finish_publish();
  if (!options_.free_weights) unit.weights.wait_acquire();
}

void Engine::abandon() {
  groups_.world.activity()->in_step = false;
  drain_reductions();
  for (const auto& unit : units_) {
    unit->reduction.abandon();
    for (size_t place = 0; place < unit->indices.size(); ++place) {
      at::Tensor weight = unit->weights.live(place);
      weight.mutable_grad() = at::Tensor();
    }
    unit->weights.release();
  }
  tape_->next = 0;
  tape_->records.assign(calls_.size(), std::nullopt);
  micro_batch_ = 0;
  counts_.zero_();
  losses_.zero_();
}

}  // namespace pacer::parallel
