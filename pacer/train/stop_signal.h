// Ctrl-C and SIGTERM as a wish that the training loop grants at the end of a step.
#pragma once

#include <csignal>

namespace pacer::train {

// While an object lives, the first SIGINT, SIGTERM or SIGHUP is noted; a second one of the same kind ends the process
// as if nobody had asked. A signal that was ignored when the object was made (nohup) stays ignored. One object at a
// time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static int received();  // number of the signal, 0 when there was none

 private:
  struct sigaction before_[3];
};

}  // namespace pacer::train
