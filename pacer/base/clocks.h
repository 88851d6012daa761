// Seconds on the clocks that measurements use.
#pragma once

namespace pacer {

double wall_seconds();         // steady clock; only differences mean something
double process_cpu_seconds();  // user and system time of all threads of this process
double thread_cpu_seconds();   // of the calling thread

// Wall and CPU time since it was made or last restarted.
class Stopwatch {
 public:
  Stopwatch() { restart(); }
  void restart() {
    wall_ = wall_seconds();
    cpu_ = process_cpu_seconds();
  }
  double wall() const { return wall_seconds() - wall_; }
  double cpu() const { return process_cpu_seconds() - cpu_; }

 private:
  double wall_ = 0, cpu_ = 0;
};

}  // namespace pacer
