// Streams and events of any device, and the two functions through which every order between them goes.
//
// A stream is c10::Stream, the stream of the calling thread changes with c10::StreamGuard. The host has one stream, on
// which work is done when a call returns: there everything below is defined and does nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "pacer/device/runtime.h"

namespace c10 {
struct Event;
}
namespace c10d {
class Work;
}

namespace pacer::device {

c10::Stream current_stream(const Runtime& runtime);  // of this thread
c10::Stream new_stream(const Runtime& runtime);      // one of the back end's pool; on the host the only one
bool is_done(const c10::Stream& stream);             // whether all its work is done; true on the host

// A point in a stream. Not thread-safe; movable.
class Event {
 public:
  // timed: elapsed_ms may be asked. Throws Error{device} when the device cannot time events.
  explicit Event(const Runtime& runtime, bool timed = false);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  void record(const c10::Stream& stream);       // the newest record is what counts from then on
  bool is_done() const;                         // true when nothing was recorded, and on the host
  double elapsed_ms(const Event& later) const;  // both timed, recorded and done

 private:
  friend void wait(const char*, const c10::Stream&, const Event&);
  friend void wait(const char*, const Event&);
  std::unique_ptr<c10::Event> event_;  // null on the host
};

// What `stream` does from now on comes after the event. site: a name for this place in the code, unique in the tree;
// mutate_waits turns sites off one by one to show that a test misses each.
void wait(const char* site, const c10::Stream& stream, const Event& event);
// What `stream` does from now on comes after everything that is in `earlier` now.
void wait(const char* site, const c10::Stream& stream, const c10::Stream& earlier);
// The host waits: for an event, for a stream, and (collectives) for `work`, where a back end orders the current stream
// instead and the host goes on.
void wait(const char* site, const Event& event);
void wait(const char* site, const c10::Stream& stream);
void wait(const char* site, c10d::Work& work);

// The memory of `tensor`, made on another stream, is used by `stream`: it is not handed out again before what is in
// `stream` at the moment of its release is done. Throws Error{device} when the back end cannot promise that.
void record_stream(const char* site, const at::Tensor& tensor, const c10::Stream& stream);

// Debugging: the functions above do nothing at these sites, until called again. Also $PACER_DISABLED_SITES (commas),
// which is read once and warned of. An unknown name is no error: a site is known when it was reached.
void disable_sites(std::vector<std::string> sites);
std::vector<std::string> reached_sites();  // since the start of the process, sorted

}  // namespace pacer::device
