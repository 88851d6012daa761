#include "plugins/simnpu/collectives/sim_hccl.h"

#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include <c10/core/DeviceGuard.h>

#include "plugins/simnpu/memory/arena.h"
#include "plugins/simnpu/memory/device_allocator.h"
#include "plugins/simnpu/operators/view.h"
#include "plugins/simnpu/rules/rules.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {
namespace {

using std::chrono::milliseconds;

struct Outcome {
  std::mutex mutex;
  std::exception_ptr error;
  bool succeeded = false;  // not so either when the device had failed before and skipped it
};

class SimWork final : public c10d::Work {
 public:
  SimWork(int rank, c10d::OpType operation, c10::Device device, RecordingPtr done, std::shared_ptr<Outcome> outcome,
          std::vector<at::Tensor> outputs, uint64_t number)
      : c10d::Work(rank, operation),
        device_(device),
        done_(std::move(done)),
        outcome_(std::move(outcome)),
        outputs_(std::move(outputs)),
        number_(number) {}

  bool isCompleted() override { return Runtime::get().query(done_); }
  bool isSuccess() const override {
    const std::lock_guard lock(outcome_->mutex);
    return outcome_->succeeded;
  }
  std::exception_ptr exception() const override {
    const std::lock_guard lock(outcome_->mutex);
    return outcome_->error;
  }
  // Orders the current stream after the collective. The host goes on, except after a barrier.
  bool wait(milliseconds) override {
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    Runtime& runtime = Runtime::get();
    runtime.wait(runtime.current_stream(device_.index()), done_);
    if (opType_ == c10d::OpType::BARRIER) runtime.synchronize(done_);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  void blockCurrentStream() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return outputs_; }
  uint64_t getSequencenumber() const override { return number_; }

 private:
  const c10::Device device_;
  const RecordingPtr done_;
  const std::shared_ptr<Outcome> outcome_;
  const std::vector<at::Tensor> outputs_;
  const uint64_t number_;
};

Directory directory_of(const c10::intrusive_ptr<c10d::Store>& store) {
  // A client of its own: it is asked by the worker, while the host may wait with the caller's.
  const c10::intrusive_ptr<c10d::Store> own = store->clone();
  return {[own](const std::string& key, const std::string& value) { own->set(key, value); },
          [own](const std::string& key) -> std::optional<std::string> {
            if (!own->check({key})) return std::nullopt;
            return own->get_to_str(key);
          }};
}

Buffer buffer_of(const at::Tensor& tensor) {
  return {static_cast<char*>(Arena::get().for_worker(tensor.const_data_ptr())), tensor.numel(),
          static_cast<size_t>(tensor.element_size()), tensor.scalar_type()};
}

// In-place tensors are outputs too: what the collective reads is copied before the outputs are poisoned.
class Staged {
 public:
  Staged(const std::vector<Buffer>& inputs, const std::vector<Buffer>& outputs) : inputs_(inputs) {
    for (Buffer& input : inputs_) {
      for (const Buffer& output : outputs) {
        if (input.data + input.bytes() <= output.data || output.data + output.bytes() <= input.data) continue;
        copies_.emplace_back(input.data, input.data + input.bytes());
        input.data = copies_.back().data();
        break;
      }
    }
    if (!on(Switch::poison)) return;
    for (const Buffer& output : outputs) std::memset(output.data, 0xFF, output.bytes());
  }
  const std::vector<Buffer>& inputs() const { return inputs_; }

 private:
  std::vector<Buffer> inputs_;
  std::vector<std::vector<char>> copies_;
};

}  // namespace

SimHccl::SimHccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, milliseconds timeout)
    : c10d::Backend(rank, size),
      mesh_(std::make_shared<Mesh>(directory_of(store), rank, size)),
      device_(kDevice, Runtime::get().current_device()),
      stream_(Runtime::get().new_stream(device_.index())),
      timeout_(timeout) {}

SimHccl::~SimHccl() = default;  // work that is queued keeps the connections

void SimHccl::abort() { mesh_->abort("the group was aborted"); }

c10d::ErrorType SimHccl::getError() {
  const auto broken = mesh_->broken();
  if (!broken) return c10d::ErrorType::SUCCESS;
  return broken->rfind("timed out", 0) == 0 ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::COMM_ERROR;
}

SimHccl::WorkPtr SimHccl::launch(Call call, milliseconds timeout) {
  Runtime& runtime = Runtime::get();
  const auto broken = mesh_->broken();
  TORCH_CHECK(!broken, "HCCL ", call.function, ": this group cannot be used any more: ", *broken);
  const bool pair = c10d::isP2POp(call.operation);
  std::vector<Access> accesses;
  std::vector<Buffer> inputs, outputs;
  for (const bool write : {false, true}) {
    for (const at::Tensor& tensor : write ? call.outputs : call.inputs) {
      TORCH_CHECK(tensor.device() == device_, "HCCL ", call.function, ": a tensor on ", tensor.device(),
                  " for a group on ", device_);
      TORCH_CHECK(tensor.is_contiguous(), "HCCL ", call.function, ": tensors must be contiguous");
      check_collective(call.function, tensor.scalar_type(), call.reduces, pair ? 2 : size_);
      accesses.push_back(View(tensor).access(write));
      (write ? outputs : inputs).push_back(buffer_of(tensor));
    }
  }
  if (call.inputs.empty() && call.outputs.empty()) check_collective(call.function, at::kFloat, false, size_);

  runtime.wait(stream_, runtime.record(runtime.current_stream(device_.index())));
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const at::Tensor& tensor : *list) DeviceAllocator::get().recordStream(tensor.storage().data_ptr(), stream_);
  }
  const uint64_t number = pair ? 0 : next_++;
  const auto outcome = std::make_shared<Outcome>();
  if (timeout <= milliseconds(0)) timeout = timeout_;
  runtime.launch(stream_, {intern(call.function), std::move(accesses),
                           [mesh = mesh_, outcome, number, operation = call.operation, timeout, inputs, outputs,
                            body = std::move(call.body), what = std::string(call.function)] {
                             try {
                               const Staged staged(inputs, outputs);
                               Round round(*mesh, number, operation, timeout);
                               body(round, staged.inputs(), outputs);
                               const std::lock_guard lock(outcome->mutex);
                               outcome->succeeded = true;
                             } catch (const std::exception& error) {
                               const std::string named = what + " on rank " + std::to_string(mesh->rank()) + " of " +
                                                         std::to_string(mesh->size()) + ": " + error.what();
                               const std::lock_guard lock(outcome->mutex);
                               outcome->error = std::make_exception_ptr(std::runtime_error(named));
                               throw std::runtime_error(named);
                             }
                           }});
  return c10::make_intrusive<SimWork>(rank_, call.operation, device_, runtime.record(stream_), outcome,
                                      std::move(call.outputs), number);
}

SimHccl::WorkPtr SimHccl::endCoalescing() {
  const auto outcome = std::make_shared<Outcome>();  // the single works tell their errors
  outcome->succeeded = true;
  return c10::make_intrusive<SimWork>(rank_, c10d::OpType::COALESCED, device_, Runtime::get().record(stream_), outcome,
                                      Tensors{}, next_);
}

}  // namespace pacer::simnpu
