// The operators that every PrivateUse1 back end brings itself: factories, views and storage; the rest falls back.
#include <set>

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "plugins/simnpu/operators/copy.h"
#include "plugins/simnpu/operators/fallback.h"
#include "plugins/simnpu/operators/fused.h"
#include "plugins/simnpu/operators/gru.h"
#include "plugins/simnpu/operators/launch.h"
#include "plugins/simnpu/operators/operator_info.h"

namespace pacer::simnpu {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Names the allocation after the operator that makes it, or after the factory when that is what the host called.
const std::string* maker(const std::string* factory) { return current_operator ? current_operator : factory; }

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  static const std::string* const name = intern("aten::empty");
  const OperatorScope scope(maker(name));
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &DeviceAllocator::get(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  static const std::string* const name = intern("aten::empty_strided");
  const OperatorScope scope(maker(name));
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &DeviceAllocator::get(), kKeys,
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!format || *format == at::MemoryFormat::Contiguous || *format == at::MemoryFormat::Preserve,
              "npu: resize_ to another memory format");
  const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, self.element_size(),
                                                                  static_cast<size_t>(self.storage_offset()));
  if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  return at::native::set_storage_cpu_(self, std::move(source), 0, {elements}, {});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  DeviceAllocator::get().recordStream(self.storage().data_ptr(), stream);
}

// A composite kernel beats the fallback: where the CPU has a kernel of its own beside it (silu_backward), the device
// would compute with other roundings than the CPU. Real devices have kernels for these, so they get the CPU's.
void prefer_cpu_kernels(torch::Library& aten, const std::set<std::string>& taken) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0 || taken.count(toString(name))) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
      continue;
    }
    if (info_of(*op).returns_view) continue;
    const std::string full = toString(name);
    aten.impl(full.c_str() + 6, torch::CppFunction::makeFromBoxedFunction<&run_operator>());
  }
}

}  // namespace

void register_operators() {
  // Never destroyed: taking registrations back at exit would race with the workers.
  auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  std::set<std::string> taken;
  const auto add = [&](const char* name, auto* kernel) {
    aten->impl(name, kernel);
    taken.insert(std::string("aten::") + name);
  };
  add("empty.memory_format", &empty);
  add("empty_strided", &empty_strided);
  add("resize_", &resize_);
  add("_copy_from", &copy_from);
  add("_copy_from_and_resize", &copy_from_and_resize);
  add("_local_scalar_dense", &local_scalar_dense);
  add("view", &at::native::view);
  add("_reshape_alias", &at::native::_reshape_alias);
  add("as_strided", &as_strided);
  add("unfold", &at::native::unfold);
  add("set_.source_Tensor", &at::native::set_tensor_);
  add("set_.source_Storage", &set_storage);
  add("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  add("record_stream", &record_stream);
  add_gru(*aten);
  // One kernel on the real device, with a rule of its own; LibTorch would take it apart.
  for (const char* name : {"logsumexp", "logsumexp.out"}) {
    aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&run_operator>());
    taken.insert(std::string("aten::") + name);
  }
  prefer_cpu_kernels(*aten, taken);
  auto* every = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  every->fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
  register_fused_operators();
}

}  // namespace pacer::simnpu
