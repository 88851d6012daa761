// The collectives of the simulated NPU: a c10d back end between processes of one machine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "plugins/simnpu/collectives/mesh.h"
#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {

// One collective on the worker: exchanges bytes with the other ranks, within the time-out.
class Round {
 public:
  Round(Mesh& mesh, uint64_t number, c10d::OpType operation, std::chrono::milliseconds timeout)
      : mesh_(mesh), tag_{number, static_cast<uint32_t>(operation), 0}, deadline_(Mesh::Clock::now() + timeout) {}
  void exchange(std::vector<Mesh::Send> sends, std::vector<Mesh::Receive> receives) {
    mesh_.exchange(tag_, std::move(sends), std::move(receives), deadline_);
    ++tag_.round;
  }
  int rank() const { return mesh_.rank(); }
  int size() const { return mesh_.size(); }

 private:
  Mesh& mesh_;
  Tag tag_;
  Mesh::Clock::time_point deadline_;
};

// A contiguous tensor on the worker's side.
struct Buffer {
  char* data;
  int64_t elements;
  size_t element_bytes;
  at::ScalarType dtype;
  size_t bytes() const { return static_cast<size_t>(elements) * element_bytes; }
};

// As HCCL behaves: a call queues its work on the group's own stream and returns, also while a peer is late. wait()
// makes the current stream wait, not the host, except for barrier(). A time-out, a peer that is gone and abort() are
// errors of the device that the next waiting call throws; the group is unusable from then on. Tensors are contiguous
// and on one device. Until a collective is over its outputs are NaN.
class SimHccl final : public c10d::Backend {
 public:
  SimHccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout);
  ~SimHccl() override;

  const std::string getBackendName() const override { return "hccl"; }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override {}
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return next_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override { abort(); }

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  struct Call {
    const char* function;  // "HcclAllReduce"
    c10d::OpType operation;
    bool reduces = false;
    Tensors inputs, outputs;  // an in-place tensor is in both
    // Gets the inputs as they were when the work began.
    std::function<void(Round&, const std::vector<Buffer>& inputs, const std::vector<Buffer>& outputs)> body;
  };
  WorkPtr launch(Call call, std::chrono::milliseconds timeout);
  WorkPtr all_reduce(const char* function, Tensors tensors, c10d::ReduceOp op, std::chrono::milliseconds timeout);
  WorkPtr all_gather(Tensors outputs, Tensors inputs, std::chrono::milliseconds timeout);
  WorkPtr reduce_scatter_into(Tensors outputs, Tensors inputs, c10d::ReduceOp op, std::chrono::milliseconds timeout);

  std::shared_ptr<Mesh> mesh_;
  const c10::Device device_;
  const c10::Stream stream_;
  std::chrono::milliseconds timeout_;
  uint64_t next_ = 0;  // number of the next collective; messages between pairs have none
};

// total = inputs[0] op inputs[1] op ... in the order of ranks, in the dtype of the tensors; AVG divides at the end.
void reduce_in_order(const std::vector<const void*>& inputs, const Buffer& total, c10d::ReduceOp op);

}  // namespace pacer::simnpu
