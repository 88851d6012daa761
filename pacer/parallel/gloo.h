// The collectives of CPUs: Gloo, as LibTorch brings it.
#pragma once

#include <chrono>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace pacer::parallel {

// A communicator of `size` ranks, of which this process is `rank`; they meet in `store`, which has a prefix of its own
// for them. Operations give up after `timeout`, and then the communicator is lost for good.
// Listens on the interface $GLOO_SOCKET_IFNAME, else where this machine's name points.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout);

}  // namespace pacer::parallel
