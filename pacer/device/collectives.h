// Communicators of a device's back end.
#pragma once

#include <chrono>

#include <c10/util/intrusive_ptr.h>

#include "pacer/device/runtime.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace pacer::device {

// The vendor's communicator of `size` ranks on the current device of this thread, which must be the runtime's: bound
// before any communicator exists. Null: the back end brings none, and tensors are exchanged through host memory.
// store: with a prefix of its own per group. Throws Error{communication} with the vendor's message.
c10::intrusive_ptr<c10d::Backend> make_collectives(const Runtime& runtime, const c10::intrusive_ptr<c10d::Store>& store,
                                                   int rank, int size, std::chrono::milliseconds timeout);

// "hccl"; "" when there is none.
std::string collectives_name(const Runtime& runtime);

}  // namespace pacer::device
