#include "plugins/simnpu/operators/view.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>

#include "plugins/simnpu/memory/arena.h"
#include "plugins/simnpu/memory/device_allocator.h"
#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {

bool on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kDevice; }

View::View(const at::Tensor& tensor)
    : address_(reinterpret_cast<uintptr_t>(tensor.storage().data()) +
               static_cast<size_t>(tensor.storage_offset()) * tensor.element_size()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()),
      dtype_(tensor.scalar_type()),
      element_bytes_(tensor.element_size()),
      is_wrapped_number_(tensor.unsafeGetTensorImpl()->is_wrapped_number()) {}

at::Tensor View::tensor() const {
  void* memory = Arena::get().for_worker(reinterpret_cast<void*>(address_));
  at::Tensor tensor = at::from_blob(memory, sizes_, strides_, at::TensorOptions(dtype_));
  if (is_wrapped_number_) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

Access View::access(bool write) const { return {Region(address_, sizes_, strides_, element_bytes_), write}; }

void resize_storage(const c10::Storage& storage, size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  c10::DataPtr fresh = DeviceAllocator::get().allocate(bytes);
  if (const size_t kept = std::min(bytes, storage.nbytes()); kept > 0) {
    static const std::string* const name = intern("resize_");
    const void *from = Arena::get().for_worker(storage.data()), *to = Arena::get().for_worker(fresh.get());
    Runtime::get().launch(Runtime::get().current_stream(storage.device().index()),
                          {name,
                           {{Region::bytes(reinterpret_cast<uintptr_t>(storage.data()), kept), false},
                            {Region::bytes(reinterpret_cast<uintptr_t>(fresh.get()), kept), true}},
                           [from, to, kept] { std::memcpy(const_cast<void*>(to), from, kept); }});
  }
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

}  // namespace pacer::simnpu
