#include "plugins/simnpu/operators/fallback.h"

#include <memory>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include "plugins/simnpu/operators/arguments.h"
#include "plugins/simnpu/operators/copy.h"
#include "plugins/simnpu/operators/launch.h"
#include "plugins/simnpu/operators/operator_info.h"
#include "plugins/simnpu/operators/shapes.h"
#include "plugins/simnpu/rules/rules.h"
#include "plugins/simnpu/runtime/generator.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {
namespace {

using torch::jit::Stack;

struct Call {
  const c10::OperatorHandle& op;
  const OperatorInfo& info;
  Stack arguments;
  c10::Device device;
};

// The device of the tensors, else of a device argument, else the current one.
c10::Device device_of(const OperatorInfo& info, const Stack& arguments) {
  std::optional<c10::Device> named, found;
  for (const c10::IValue& value : arguments) {
    if (value.isDevice() && value.toDevice().type() == kDevice) named = value.toDevice();
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!on_device(tensor)) return;
      TORCH_CHECK(!found || *found == tensor.device(), "npu: ", *info.name, " got tensors on ", *found, " and on ",
                  tensor.device());
      found = tensor.device();
    });
  }
  const c10::Device device = found ? *found : named.value_or(c10::Device(kDevice, -1));
  return device.has_index() ? device : c10::Device(kDevice, Runtime::get().current_device());
}

// A CPU tensor may only be a scalar. Lists of indices are the exception that LibTorch's indexing makes: they are
// copied.
void settle_cpu_tensors(Call& call) {
  for (c10::IValue& value : call.arguments) {
    if (value.isOptionalTensorList()) {
      value = map_tensors(value, [&](const at::Tensor& t) { return on_device(t) ? t : t.to(call.device); });
    } else {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        TORCH_CHECK(on_device(tensor) || tensor.dim() == 0, "npu: ", *call.info.name,
                    " got tensors on the CPU and on the device: a CPU tensor of shape ", tensor.sizes());
      });
    }
  }
}

std::vector<at::Tensor> device_tensors(const Stack& values) {
  std::vector<at::Tensor> all;
  for (const c10::IValue& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (on_device(tensor)) all.push_back(tensor);
    });
  }
  return all;
}

std::vector<Access> accesses_of(const Call& call) {
  std::vector<Access> all;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    for_each_tensor(call.arguments[i], [&](const at::Tensor& tensor) {
      if (on_device(tensor)) all.push_back(View(tensor).access(call.info.written[i]));
    });
  }
  return all;
}

std::vector<Frozen> freeze(const Stack& values) {
  std::vector<Frozen> frozen;
  for (const c10::IValue& value : values) frozen.emplace_back(value);
  return frozen;
}

void finish(const Call& call, Stack* stack, Stack fresh) {
  torch::jit::drop(*stack, call.arguments.size());
  for (size_t r = 0; r < fresh.size(); ++r) {
    const int source = call.info.returned[r];
    if (source < 0) {
      stack->push_back(std::move(fresh[r]));
    } else {
      stack->push_back(call.arguments[static_cast<size_t>(source)]);
    }
  }
}

// --- operators that the host waits for

// Some random operators have no generator argument and use the CPU's default one: it lends itself to the device's twin.
class BorrowedDefaultGenerator {
 public:
  explicit BorrowedDefaultGenerator(const at::Generator& twin)
      : lock_(mutex()), twin_(twin), own_(at::detail::getDefaultCPUGenerator()), kept_(own_.get_state()) {
    own_.set_state(twin_.get_state());
  }
  ~BorrowedDefaultGenerator() {
    twin_.set_state(own_.get_state());
    own_.set_state(kept_);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::lock_guard<std::mutex> lock_;
  at::Generator twin_, own_;
  at::Tensor kept_;
};

void run_and_wait(const Call& call, Stack* stack) {
  count(Switch::synchronous_launches);
  const OperatorInfo& info = call.info;
  Stack host_arguments = call.arguments;
  for (size_t i = 0; i < host_arguments.size(); ++i) {
    // The kernel may give an out= argument any size.
    if (info.is_out[i] && host_arguments[i].isTensor()) {
      host_arguments[i] = at::empty({0}, host_arguments[i].toTensor().options().device(c10::kCPU));
    }
  }
  const bool needs_generator = info.random && info.generator >= 0;
  if (needs_generator && host_arguments[static_cast<size_t>(info.generator)].isNone()) {
    host_arguments[static_cast<size_t>(info.generator)] = default_generator(call.device.index());
  }
  auto host = std::make_shared<Stack>();
  auto outs = std::make_shared<Stack>();
  launch(call.device, info.name, accesses_of(call),
         [op = call.op, random = info.random && !needs_generator,
          twin = twin_of(default_generator(call.device.index())), frozen = freeze(host_arguments), host, outs] {
           for (const Frozen& value : frozen) host->push_back(value.thaw());
           *outs = *host;
           std::optional<BorrowedDefaultGenerator> borrowed;
           if (random) borrowed.emplace(twin);
           op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), host.get());
         });
  Runtime& runtime = Runtime::get();
  runtime.synchronize(runtime.current_stream(call.device.index()));

  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (info.is_out[i] && call.arguments[i].isTensor()) {
      copy_from_and_resize(outs->at(i).toTensor(), call.arguments[i].toTensor());
    }
  }
  Stack results;
  for (const c10::IValue& value : *host) {
    results.push_back(map_tensors(value, [&](const at::Tensor& tensor) {
      at::Tensor result = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(call.device));
      copy_from(tensor, result, false);
      return result;
    }));
  }
  finish(call, stack, std::move(results));
}

// --- operators that are queued

void resize_outs(const Call& call, const Shapes& shapes) {
  size_t result = 0;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (!call.info.is_out[i] || !call.arguments[i].isTensor()) continue;
    const at::Tensor& out = call.arguments[i].toTensor();
    // Results of an out= operator are its out= arguments in their order.
    const at::Tensor& wanted = shapes.results.at(result++).toTensor();
    if (out.sizes() != wanted.sizes()) {
      out.resize_(wanted.sizes());
      if (out.strides() != wanted.strides()) out.as_strided_(wanted.sizes(), wanted.strides());
    }
  }
}

void queue(const Call& call, const std::optional<Shapes>& shapes, Stack* stack) {
  const OperatorInfo& info = call.info;
  if (shapes) resize_outs(call, *shapes);
  std::vector<Access> accesses = accesses_of(call);
  Stack results;
  std::vector<Frozen> sinks;  // per result: where the worker copies what the kernel made
  for (size_t r = 0; r < info.returned.size(); ++r) {
    if (info.returned[r] >= 0) {
      results.emplace_back();
      sinks.emplace_back(c10::IValue());
      continue;
    }
    results.push_back(map_tensors(shapes->results[r], [&](const at::Tensor& meta) {
      return at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(call.device));
    }));
    for_each_tensor(results.back(), [&](const at::Tensor& tensor) { accesses.push_back(View(tensor).access(true)); });
    sinks.emplace_back(results.back());
  }
  check_rules({*info.name, device_tensors(call.arguments), device_tensors(results)});
  launch(call.device, info.name, std::move(accesses),
         [op = call.op, frozen = freeze(call.arguments), sinks = std::move(sinks)] {
           Stack host;
           for (const Frozen& value : frozen) host.push_back(value.thaw());
           op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &host);
           for (size_t r = 0; r < sinks.size(); ++r) {
             std::vector<at::Tensor> made;
             for_each_tensor(host[r], [&](const at::Tensor& tensor) { made.push_back(tensor); });
             size_t next = 0;
             for_each_tensor(sinks[r].thaw(), [&](const at::Tensor& sink) { sink.copy_(made.at(next++)); });
           }
         });
  finish(call, stack, std::move(results));
}

// Filling nothing is how factories make tensors without elements; the real device launches nothing either.
bool fills_nothing(const Call& call) {
  for (const char* name : {"aten::zero_", "aten::fill_.Scalar", "aten::normal_", "aten::uniform_", "aten::random_"}) {
    if (*call.info.name == name) return call.arguments[0].toTensor().numel() == 0;
  }
  return false;
}

}  // namespace

void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const OperatorInfo& info = info_of(op);
  const OperatorScope scope(info.name);
  TORCH_CHECK_NOT_IMPLEMENTED(info.has_cpu_kernel, "npu: no kernel for ", *info.name);
  TORCH_CHECK_NOT_IMPLEMENTED(!info.returns_view, "npu: the view operator ", *info.name, " is not there");
  Stack arguments = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  const c10::Device device = device_of(info, arguments);
  Call call{op, info, std::move(arguments), device};
  const c10::DeviceGuard guard(device);
  settle_cpu_tensors(call);

  if (fills_nothing(call)) return finish(call, stack, Stack(info.returned.size()));

  std::optional<Shapes> shapes;
  if (!info.random && !info.returns_values) shapes = infer_shapes(op, call.arguments);
  bool has_outs = false;
  for (const bool out : info.is_out) has_outs |= out;
  if (info.random || info.returns_values || (!shapes && (info.allocates || has_outs))) {
    Stack operands;  // out= arguments get their size later
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      if (!info.is_out[i]) operands.push_back(call.arguments[i]);
    }
    check_rules({*info.name, device_tensors(operands), {}});
    return run_and_wait(call, stack);
  }
  queue(call, shapes, stack);
}

}  // namespace pacer::simnpu
