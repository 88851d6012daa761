#include "plugins/simnpu/runtime/worker.h"

#include <chrono>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {

bool Worker::enqueue(Task task) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return false;
  tasks_.push_back(std::move(task));
  // Detached and leaked: the library stays loaded, and a thread that waits for a task must not keep the process.
  if (!std::exchange(started_, true)) std::thread([this] { run(); }).detach();
  changed_.notify_all();
  return true;
}

bool Worker::idle() {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && !running_;
}

void Worker::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void Worker::release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void Worker::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Worker::wait_for_running(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return !running_; });
}

// One kernel in four starts 0 to 255 microseconds late: enough for other streams to overtake it, cheap enough for a
// training run. A function of the seed, the stream and the kernel's place in it.
void Worker::delay(uint64_t ordinal) const {
  const auto seed = static_cast<uint64_t>(value_of(Switch::delay_seed));
  if (seed == 0) return;
  uint64_t x = seed * 0x9E3779B97F4A7C15u + (uint64_t{actor_} << 40) + ordinal;  // SplitMix64 (Steele et al. 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  if ((x & 3) == 0) std::this_thread::sleep_for(std::chrono::microseconds((x >> 8) & 255));
}

void Worker::run() {
  at::set_num_threads(1);            // of this thread: one core's worth of device, and sums in one order
  const c10::InferenceMode no_grad;  // kernels below must never touch autograd
  uint64_t ordinal = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !tasks_.empty() && !held_ && !stopped_; });
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = !task.tells;
    lock.unlock();
    if (task.delayable) delay(ordinal++);
    task.run();
    task.run = nullptr;  // what it kept goes before the stream counts as idle
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace pacer::simnpu
