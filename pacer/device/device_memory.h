// Memory of devices: how much is used, and staging between host and device.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "pacer/device/runtime.h"

namespace pacer::device {

// The allocator of a device that is not the host. Throws Error{device} for a back end without statistics.
c10::DeviceAllocator& device_allocator(c10::Device device);

// Bytes in tensors of the device, now and at most since the last reset. On the host both are 0: its memory is the
// process's, and the operating system counts it.
struct MemoryUse {
  uint64_t now_bytes = 0, peak_bytes = 0;
};
MemoryUse memory_use(const Runtime& runtime);
void reset_peak_memory(const Runtime& runtime);
void release_cached_memory(const Runtime& runtime);  // gives unused blocks back to the device

// An uninitialised host tensor that the device can copy from and to while the host goes on; an ordinary one on the
// host.
at::Tensor pinned_empty(const Runtime& runtime, const std::vector<int64_t>& sizes, at::ScalarType dtype);

// A copy on the runtime's device; the tensor itself when it is there already. From pinned memory the copy is queued on
// the current stream and may run later: the source must live and stay unchanged until then (streams.h has events).
at::Tensor to_device(const Runtime& runtime, const at::Tensor& tensor);

// A copy on the host that may be read; the tensor itself when it is there. Waits for the device.
at::Tensor to_host(const at::Tensor& tensor);

}  // namespace pacer::device
