// What LibTorch's header of its Gloo back end names of Gloo's; the code is inside of LibTorch.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
