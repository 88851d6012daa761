#include "pacer/nn/page_tensor.h"

#include <sys/mman.h>

#include <string>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"

namespace pacer::nn {

at::Tensor page_tensor(const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  constexpr size_t kWorthMapping = size_t{256} << 10;
  size_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  if (bytes < kWorthMapping) return at::zeros(sizes, at::TensorOptions().dtype(dtype));
  void* const start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    throw Error(ErrorKind::resources, "no memory for " + std::to_string(bytes >> 20) + " MB of kept states",
                "lower features.memory_mb");
  }
  return at::from_blob(
      start, sizes, [bytes](void* pages) { ::munmap(pages, bytes); }, at::TensorOptions().dtype(dtype));
}

}  // namespace pacer::nn
