// Where the time of a decoding run goes, in CPU and in wall seconds.
#pragma once

#include "pacer/base/clocks.h"

namespace pacer::decode {

struct Seconds {
  double cpu = 0.0;   // of the whole process, all threads
  double wall = 0.0;  // monotonic clock
  Seconds& operator+=(const Seconds& other) {
    cpu += other.cpu;
    wall += other.wall;
    return *this;
  }
};

struct PhaseTimes {
  Seconds prefill;  // the target over the prompt
  Seconds draft;    // the draft's start, proposals (their draws included) and context updates
  Seconds verify;   // the target over anchor and drafts; in plain decoding, over the newest token
  Seconds sample;   // maxima, distributions, draws and acceptance
  Seconds other;    // everything else: caches, records, the caller's callback

  Seconds total() const {
    Seconds sum = prefill;
    sum += draft, sum += verify, sum += sample, sum += other;
    return sum;
  }
  PhaseTimes& operator+=(const PhaseTimes& more) {
    prefill += more.prefill, draft += more.draft, verify += more.verify, sample += more.sample, other += more.other;
    return *this;
  }
};

// Every moment between construction and the last lap() belongs to exactly one phase.
class PhaseClock {
 public:
  PhaseClock() : last_(now()) {}
  void lap(Seconds& phase) {
    const Seconds time = now();
    phase.cpu += time.cpu - last_.cpu;
    phase.wall += time.wall - last_.wall;
    last_ = time;
  }
  static Seconds now() { return {process_cpu_seconds(), wall_seconds()}; }

 private:
  Seconds last_;
};

}  // namespace pacer::decode
