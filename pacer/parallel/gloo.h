// The collectives of CPUs: Gloo, as LibTorch brings it.
#pragma once

#include <chrono>
#include <string>

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

// The address where make_gloo listens, as numbers: "127.0.0.1". Throws Error{communication} when there is none.
std::string gloo_address();

// 127.x.y.z, ::1, or the name localhost.
bool is_loopback(const std::string& address);

}  // namespace pacer::parallel
