// One stream: a queue of tasks and the thread that runs them in order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "plugins/simnpu/memory/vector_clock.h"
#include "plugins/simnpu/runtime/gate.h"

namespace pacer::simnpu {

class Worker final : public Gate {
 public:
  // A task must not throw. `delayable`: the switch delay_seed may make it start late. `tells`: it only says that what
  // came before is done, so that the stream is idle already when whoever waits for it goes on.
  struct Task {
    std::function<void()> run;
    bool delayable;
    bool tells = false;
  };

  explicit Worker(Actor actor) : actor_(actor) {}  // the thread starts with the first task

  bool enqueue(Task task);  // false: the worker was stopped, the task never runs
  bool idle();              // nothing queued and nothing running
  void hold() override;
  void release() override;

  Actor actor() const { return actor_; }

  // At the end of the process: tasks that did not begin never do. The second waits until then for one that runs.
  void stop();
  void wait_for_running(std::chrono::steady_clock::time_point until);

 private:
  void run();
  void delay(uint64_t ordinal) const;

  const Actor actor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool started_ = false, running_ = false, held_ = false, stopped_ = false;
};

}  // namespace pacer::simnpu
