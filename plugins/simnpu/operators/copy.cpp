#include "plugins/simnpu/operators/copy.h"

#include <memory>

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include "plugins/simnpu/memory/host_allocator.h"
#include "plugins/simnpu/operators/launch.h"
#include "plugins/simnpu/operators/view.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {
namespace {

void launch_copy(c10::Device device, const std::string* name, const at::Tensor& from, const at::Tensor& to) {
  const View source(from), target(to);
  launch(device, name, {source.access(false), target.access(true)},
         [source, target] { target.tensor().copy_(source.tensor()); });
}

void copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  static const std::string* const name = intern("copy from device to device");
  Runtime& runtime = Runtime::get();
  const c10::Stream reader = runtime.current_stream(to.device().index());
  const c10::Stream owner = runtime.current_stream(from.device().index());
  runtime.wait(reader, runtime.record(owner));
  launch_copy(to.device(), name, from, to);
  runtime.wait(owner, runtime.record(reader));  // or the source's memory is reused under the copy
}

}  // namespace

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  static const std::string* const into = intern("copy from host to device");
  static const std::string* const out = intern("copy from device to host");
  static const std::string* const within = intern("aten::copy_");
  TORCH_CHECK(from.sizes() == to.sizes(), "npu: copy of ", from.sizes(), " into ", to.sizes());
  if (from.numel() == 0) return to;
  if (on_device(from) && on_device(to)) {
    if (from.device() == to.device()) {
      launch_copy(to.device(), within, from, to);
    } else {
      copy_between_devices(from, to);
    }
    return to;
  }
  const at::Tensor &host = on_device(to) ? from : to, &device_side = on_device(to) ? to : from;
  Runtime& runtime = Runtime::get();
  const c10::Stream stream = runtime.current_stream(device_side.device().index());
  const bool pinned = HostAllocator::get().is_pinned(host.const_data_ptr());
  launch_copy(device_side.device(), on_device(to) ? into : out, from, to);
  if (non_blocking && pinned) {
    HostAllocator::get().record_event(const_cast<void*>(host.storage().data()), host.storage().data_ptr().get_context(),
                                      stream);
  } else {
    runtime.synchronize(stream);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  static const std::string* const name = intern("aten::_local_scalar_dense");
  const auto value = std::make_shared<at::Scalar>();
  const View view(tensor);
  launch(tensor.device(), name, {view.access(false)}, [view, value] { *value = view.tensor().item(); });
  Runtime& runtime = Runtime::get();
  runtime.synchronize(runtime.current_stream(tensor.device().index()));
  return *value;
}

}  // namespace pacer::simnpu
