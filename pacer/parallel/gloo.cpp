#include "pacer/parallel/gloo.h"

#include <cstdlib>

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

// The declarations were compared with what this version exports; look again at another one.
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13, "compare gloo_declarations with this LibTorch");

namespace pacer::parallel {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(interface == nullptr || *interface == 0
                                 ? c10d::ProcessGroupGloo::createDefaultDevice()
                                 : c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace pacer::parallel
