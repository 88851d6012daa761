#include "pacer/device/indices.h"

#include "pacer/device/back_ends.h"

namespace pacer::device {

at::ScalarType index_dtype(c10::Device device) {
  if (device.is_cpu()) return at::kLong;
  const Plugin* plugin = loaded_foreign_back_end();
  const bool of_it = plugin != nullptr && plugin->torch_type == device.type();
  return of_it && !plugin->capabilities().has(Capability::int64_indices) ? at::kInt : at::kLong;
}

at::Tensor as_indices(const at::Tensor& numbers, c10::Device device) { return numbers.to(device, index_dtype(device)); }

}  // namespace pacer::device
