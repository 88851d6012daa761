// The driver: devices, streams, versioned events, launches, and the order between them.
//
// Whether two accesses are ordered is decided when they are launched, from vector clocks: a stream's clock grows with
// its operations, an event carries the clock of the stream that it was recorded on, waiting merges clocks. The host is
// one more actor, all its threads together: synchronising merges into it, launching merges from it. So a missing wait
// is found at every run, however the threads happen to run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "plugins/simnpu/memory/history.h"
#include "plugins/simnpu/runtime/worker.h"

namespace pacer::simnpu {

inline constexpr auto kDevice = c10::DeviceType::PrivateUse1;

// One recording of an event. Recording it again makes a new one, so that who waited for the old one still does.
class Recording {
 public:
  void signal();
  void wait();
  bool done();
  std::chrono::steady_clock::time_point time();  // of the signal

 private:
  friend class Runtime;
  VectorClock clock_;  // what is over once this is done; guarded by the runtime
  c10::DeviceIndex device_ = 0;
  Actor actor_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::chrono::steady_clock::time_point time_;
};
using RecordingPtr = std::shared_ptr<Recording>;

struct Kernel {
  const std::string* name;  // interned
  std::vector<Access> accesses;
  std::function<void()> body;  // runs on the worker; keeps addresses, never tensors
};

const std::string* intern(const std::string& name);

class Runtime {
 public:
  static Runtime& get();  // never destroyed

  // --- devices and streams; the current ones are per thread
  c10::DeviceIndex device_count() const;
  c10::DeviceIndex current_device() const;
  void set_device(c10::DeviceIndex index);  // throws for one that is not there
  c10::Stream current_stream(c10::DeviceIndex index);
  c10::Stream exchange_stream(c10::Stream stream);
  c10::Stream pool_stream(c10::DeviceIndex index);  // one of a few, in turn
  c10::Stream new_stream(c10::DeviceIndex index);   // of its own
  Worker& worker(c10::Stream stream);

  // --- launches. Throw for a hazard, and for one that was found since the last call
  void launch(c10::Stream stream, Kernel kernel);
  // A launch that comes after `ready` as well, without the rest of the stream coming after it.
  void launch_after(c10::Stream stream, Kernel kernel, const std::vector<RecordingPtr>& ready);

  // --- order
  RecordingPtr record(c10::Stream stream);
  void wait(c10::Stream stream, const RecordingPtr& recording);  // the stream waits, not the host
  // The host waits. Throw the first error that a kernel of that device left since the last such call.
  void synchronize(const RecordingPtr& recording);
  void synchronize(c10::Stream stream);
  void synchronize_device(c10::DeviceIndex index);
  bool query(const RecordingPtr& recording);  // true orders the host after it
  bool query(c10::Stream stream);
  void drain(c10::DeviceIndex index);  // as synchronize_device, and leaves errors where they are

  // --- errors that surface later
  void fail(c10::DeviceIndex index, const std::string& message);  // keeps the first
  void report_hazard(const std::string& message);                 // found outside of a launch; the next call throws it

  void shut_down();  // at the end of the process, before LibTorch's own statics go

  // Guards clocks, histories and both allocators. Whoever holds it touches no memory that a tensor carries.
  std::mutex& mutex() { return mutex_; }
  const VectorClock& host_clock() const { return host_clock_; }  // with the mutex held
  std::string name_of(Actor actor);                              // "npu:0 stream 3"; mutex held
  c10::Stream stream_of_actor(Actor actor);                      // mutex held
  RecordingPtr record_locked(c10::Stream stream);
  void launch_locked(c10::Stream stream, Kernel kernel, const std::vector<RecordingPtr>& ready);
  void report_hazard_locked(const std::string& message);
  void forget_known_locked(std::vector<RecordingPtr>& recordings) const;  // what every later launch comes after anyhow

 private:
  struct Stream;
  struct Device;
  Runtime();
  Device& device(c10::DeviceIndex index);
  Stream& stream_of(c10::Stream stream);
  c10::Stream add_stream_locked(c10::DeviceIndex index);
  void check_locked(const Stream& stream, const Kernel& kernel, const VectorClock& clock);
  void host_learns(const VectorClock& clock);
  void throw_error(c10::DeviceIndex index);
  void throw_pending_locked();

  std::mutex mutex_;
  VectorClock host_clock_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<c10::Stream> actors_;
  std::optional<std::string> pending_hazard_;
};

}  // namespace pacer::simnpu
