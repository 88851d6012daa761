// Makes the next batch while the present one is used: a thread with a stream of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include "pacer/device/runtime.h"
#include "pacer/device/streams.h"

namespace pacer::device {

// Batch: what `make` returns; `tensors` lists those tensors of it that lie on the device. Batches arrive in the order
// in which they were made. On the host the same, without streams.
//
// An exception of `make` is thrown by next() as itself, at the place of the batch that could not be made, and by every
// next() after it: training must not go on with what is left.
template <typename Batch>
class Prefetcher {
 public:
  // make: called on the worker's thread; none ends the sequence. ahead: batches that may wait to be taken.
  Prefetcher(const Runtime& runtime, std::function<std::optional<Batch>()> make,
             std::function<std::vector<at::Tensor>(const Batch&)> tensors, size_t ahead = 1)
      : runtime_(runtime),
        stream_(new_stream(runtime)),
        make_(std::move(make)),
        tensors_(std::move(tensors)),
        ahead_(ahead),
        threads_(at::get_num_threads()) {
    // What the batches are made from may still be in the making on the stream of whoever starts this.
    wait("prefetcher.begin", stream_, current_stream(runtime_));
    thread_ = std::thread([this] { work(); });
  }
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch, ready for the caller's current stream; none at the end.
  std::optional<Batch> next() {
    Made made = take();
    if (!made.batch) return std::nullopt;
    const c10::Stream stream = current_stream(runtime_);
    wait("prefetcher.ready", stream, *made.ready);
    for (const at::Tensor& tensor : tensors_(*made.batch)) record_stream("prefetcher.batch", tensor, stream);
    return std::move(made.batch);
  }

 private:
  struct Made {
    std::optional<Batch> batch;
    std::optional<Event> ready;
  };

  Made take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !made_.empty() || ended_; });
    if (made_.empty()) {
      if (failure_) std::rethrow_exception(failure_);
      return {};
    }
    Made made = std::move(made_.front());
    made_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return made;
  }

  void work() {
    std::exception_ptr failure;
    try {
      runtime_.bind_thread();
      at::set_num_threads(threads_);  // results on the host depend on it
      const c10::StreamGuard guard(stream_);
      while (one()) {
      }
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      failure_ = failure;
      ended_ = true;
    }
    changed_.notify_all();
  }

  bool one() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || made_.size() < ahead_; });
      if (stop_) return false;
    }
    Made made{make_(), std::nullopt};
    if (!made.batch) return false;
    made.ready.emplace(runtime_).record(stream_);
    {
      const std::lock_guard lock(mutex_);
      made_.push_back(std::move(made));
    }
    changed_.notify_all();
    return true;
  }

  const Runtime runtime_;
  c10::Stream stream_;
  std::function<std::optional<Batch>()> make_;
  std::function<std::vector<at::Tensor>(const Batch&)> tensors_;
  size_t ahead_;
  int threads_;  // that help the caller of the constructor, and so the worker
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Made> made_;
  std::exception_ptr failure_;
  bool ended_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace pacer::device
