// What LibTorch's header of its Gloo back end names of Gloo's; the code is inside of LibTorch.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
