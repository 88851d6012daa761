// A thread per rank that tells the others where this one is, so that survivors can say who is behind.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <c10/util/intrusive_ptr.h>

#include "pacer/parallel/process_group.h"

namespace pacer::parallel {

struct WatchdogOptions {
  std::chrono::milliseconds period = std::chrono::milliseconds(500);  // between two notes in the store
  // A step without a new collective for so long ends the process with the exit code of communication: this rank hangs
  // outside of the reach of any time-out.
  std::chrono::milliseconds stall = std::chrono::minutes(10);
  bool take_sigterm = true;  // SIGTERM says where the ranks are before it ends the process as before
};

class Watchdog {
 public:
  // store: a connection of its own, so that nobody's waiting blocks it.
  Watchdog(int64_t rank, int64_t world, c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<Activity> activity,
           const WatchdogOptions& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Which ranks are behind and in what, or give no sign of life, or that the store's host is gone; one line.
  std::string explain();

 private:
  void run();
  void note();
  void end_if_asked();
  void end_if_stalled(std::chrono::steady_clock::time_point now);

  int64_t rank_, world_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<Activity> activity_;
  WatchdogOptions options_;
  std::mutex mutex_;        // of the store connection
  std::string store_lost_;  // why, once it is
  int64_t seen_ = -1;
  std::chrono::steady_clock::time_point seen_at_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace pacer::parallel
