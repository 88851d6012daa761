// How a test holds a stream: c10::Stream::native_handle() of a simulated stream is a Gate*.
#pragma once

namespace pacer::simnpu {

// While held, nothing that was queued on the stream and has not begun starts. Thread-safe; not counted: one release()
// opens the gate. A host that synchronises with a held stream waits until somebody releases it.
class Gate {
 public:
  virtual void hold() = 0;
  virtual void release() = 0;

 protected:
  ~Gate() = default;
};

}  // namespace pacer::simnpu
