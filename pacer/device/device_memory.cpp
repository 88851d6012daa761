#include "pacer/device/device_memory.h"

#include <string>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

#include "pacer/base/error.h"

namespace pacer::device {

c10::DeviceAllocator& device_allocator(c10::Device device) {
  // c10::getDeviceAllocator would end in an assertion of LibTorch for a back end that has only a plain allocator.
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr) {
    throw Error(ErrorKind::device, "the back end of " + device.str() + " has no allocator with statistics",
                "its library is older than this version of Pacer needs");
  }
  return *allocator;
}

MemoryUse memory_use(const Runtime& runtime) {
  if (runtime.plugin() == nullptr) return {};
  const auto stats = device_allocator(runtime.device()).getDeviceStats(runtime.device().index());
  const auto& bytes = stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  return {static_cast<uint64_t>(bytes.current), static_cast<uint64_t>(bytes.peak)};
}

void reset_peak_memory(const Runtime& runtime) {
  if (runtime.plugin() != nullptr) device_allocator(runtime.device()).resetPeakStats(runtime.device().index());
}

void release_cached_memory(const Runtime& runtime) {
  if (runtime.plugin() != nullptr) device_allocator(runtime.device()).emptyCache();
}

at::Tensor pinned_empty(const Runtime& runtime, const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype);
  if (runtime.plugin() == nullptr) return at::empty(sizes, options);
  return at::empty(sizes, options.pinned_memory(true));
}

at::Tensor to_device(const Runtime& runtime, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == runtime.device()) return tensor;
  if (runtime.plugin() == nullptr) return to_host(tensor);
  return tensor.to(runtime.device(), /*non_blocking=*/tensor.is_cpu() && tensor.is_pinned());
}

at::Tensor to_host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  return tensor.to(at::kCPU);
}

}  // namespace pacer::device
