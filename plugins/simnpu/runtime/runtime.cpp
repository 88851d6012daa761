#include "plugins/simnpu/runtime/runtime.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include <c10/util/Exception.h>

#include "plugins/simnpu/memory/blocks.h"
#include "plugins/simnpu/rules/visible_devices.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {
namespace {

constexpr c10::StreamId kPoolStreams = 8;

thread_local c10::DeviceIndex this_threads_device = 0;
thread_local std::vector<c10::StreamId> this_threads_streams;

c10::Stream make(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, index), id);
}

}  // namespace

struct Runtime::Stream {
  Stream(Actor actor, c10::DeviceIndex index) : worker(actor), device(index) {}
  Worker worker;
  c10::DeviceIndex device;
  VectorClock clock;
};

struct Runtime::Device {
  std::vector<std::unique_ptr<Stream>> streams;  // by stream id; 0 is the default stream, then the pool
  c10::StreamId next_in_pool = 0;
  std::mutex error_mutex;
  std::optional<std::string> error;
  std::atomic<bool> failed{false};  // kernels are skipped until somebody has been told
};

void Recording::signal() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  time_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}
void Recording::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}
bool Recording::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}
std::chrono::steady_clock::time_point Recording::time() {
  const std::lock_guard lock(mutex_);
  return time_;
}

const std::string* intern(const std::string& name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return &*names->insert(name).first;
}

Runtime& Runtime::get() {
  static auto* runtime = new Runtime;
  return *runtime;
}

Runtime::Runtime() {
  for (int i = 0; i < settings().device_count; ++i) {
    devices_.push_back(std::make_unique<Device>());
    for (c10::StreamId id = 0; id <= kPoolStreams; ++id) add_stream_locked(static_cast<c10::DeviceIndex>(i));
  }
}

// --- devices and streams

c10::DeviceIndex Runtime::device_count() const {
  const auto of_the_machine = static_cast<int>(devices_.size());
  return static_cast<c10::DeviceIndex>(on(Switch::ignore_visible_devices) ? of_the_machine
                                                                          : visible_devices(of_the_machine));
}
c10::DeviceIndex Runtime::current_device() const { return this_threads_device; }

void Runtime::set_device(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < device_count(), "npu: invalid device index ", static_cast<int>(index),
              ": there are ", static_cast<int>(device_count()), " devices");
  this_threads_device = index;
}

Runtime::Device& Runtime::device(c10::DeviceIndex index) {
  const c10::DeviceIndex chosen = index < 0 ? current_device() : index;
  TORCH_CHECK(static_cast<size_t>(chosen) < devices_.size(), "npu: invalid device index ", static_cast<int>(chosen),
              ": there are ", devices_.size(), " devices");
  return *devices_[static_cast<size_t>(chosen)];
}

Runtime::Stream& Runtime::stream_of(c10::Stream stream) {
  return *device(stream.device_index()).streams.at(static_cast<size_t>(stream.id()));
}

c10::Stream Runtime::current_stream(c10::DeviceIndex index) {
  const c10::DeviceIndex chosen = index < 0 ? current_device() : index;
  this_threads_streams.resize(devices_.size(), 0);
  return make(chosen, this_threads_streams.at(static_cast<size_t>(chosen)));
}

c10::Stream Runtime::exchange_stream(c10::Stream stream) {
  const c10::Stream previous = current_stream(stream.device_index());
  this_threads_streams.at(static_cast<size_t>(stream.device_index())) = stream.id();
  return previous;
}

c10::Stream Runtime::pool_stream(c10::DeviceIndex index) {
  const std::lock_guard lock(mutex_);
  Device& owner = device(index);
  owner.next_in_pool = owner.next_in_pool % kPoolStreams + 1;
  return make(index < 0 ? current_device() : index, owner.next_in_pool);
}

c10::Stream Runtime::new_stream(c10::DeviceIndex index) {
  const std::lock_guard lock(mutex_);
  return add_stream_locked(index < 0 ? current_device() : index);
}

c10::Stream Runtime::add_stream_locked(c10::DeviceIndex index) {
  Device& owner = device(index);
  const auto id = static_cast<c10::StreamId>(owner.streams.size());
  owner.streams.push_back(std::make_unique<Stream>(static_cast<Actor>(actors_.size()), index));
  actors_.push_back(make(index, id));
  return actors_.back();
}

Worker& Runtime::worker(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  return stream_of(stream).worker;
}

c10::Stream Runtime::stream_of_actor(Actor actor) { return actors_.at(actor); }

std::string Runtime::name_of(Actor actor) {
  const c10::Stream stream = stream_of_actor(actor);
  return "npu:" + std::to_string(stream.device_index()) + " stream " + std::to_string(stream.id());
}

void Runtime::shut_down() {
  std::vector<Worker*> workers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& owner : devices_) {
      for (const auto& stream : owner->streams) workers.push_back(&stream->worker);
    }
  }
  for (Worker* worker : workers) worker->stop();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (Worker* worker : workers) worker->wait_for_running(until);
}

// --- launches

void Runtime::launch(c10::Stream stream, Kernel kernel) { launch_after(stream, std::move(kernel), {}); }

void Runtime::launch_after(c10::Stream stream, Kernel kernel, const std::vector<RecordingPtr>& ready) {
  const std::lock_guard lock(mutex_);
  throw_pending_locked();
  launch_locked(stream, std::move(kernel), ready);
}

void Runtime::launch_locked(c10::Stream at, Kernel kernel, const std::vector<RecordingPtr>& ready) {
  Stream& stream = stream_of(at);
  stream.clock.merge(host_clock_);
  if (on(Switch::hazard_checker)) {
    VectorClock order = stream.clock;
    for (const RecordingPtr& recording : ready) order.merge(recording->clock_);
    check_locked(stream, kernel, order);
  }
  const uint64_t tick = stream.clock.advance(stream.worker.actor());
  for (const Access& access : kernel.accesses) {
    note_access({access, stream.worker.actor(), tick, kernel.name}, host_clock_);
  }
  count(Switch::launches);
  Device& owner = *devices_[static_cast<size_t>(stream.device)];
  const auto run = [this, &owner, index = stream.device, name = kernel.name, where = name_of(stream.worker.actor()),
                    body = std::move(kernel.body)] {
    if (owner.failed) return;
    try {
      body();
    } catch (const c10::Error& error) {
      fail(index, "kernel " + *name + " on " + where + " failed: " + error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(index, "kernel " + *name + " on " + where + " failed: " + error.what());
    }
  };
  stream.worker.enqueue({run, true});
}

void Runtime::check_locked(const Stream& stream, const Kernel& kernel, const VectorClock& clock) {
  for (const Access& access : kernel.accesses) {
    const History* history = history_at(access.region.begin());
    const PastAccess* past = history ? history->conflict(access, clock) : nullptr;
    if (!past) continue;
    const auto verb = [](bool write) { return write ? " writes " : " reads "; };
    TORCH_CHECK(false, "npu hazard: ", *kernel.name, " on ", name_of(stream.worker.actor()), verb(access.write),
                describe(access.region.begin()), ", which ", *past->kernel, " on ", name_of(past->actor),
                verb(past->access.write),
                "without an order between them: let one stream wait for an event of the other, and record on every "
                "stream the tensors that it uses");
  }
}

// --- order

RecordingPtr Runtime::record(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  return record_locked(stream);
}

RecordingPtr Runtime::record_locked(c10::Stream at) {
  Stream& stream = stream_of(at);
  stream.clock.merge(host_clock_);
  auto recording = std::make_shared<Recording>();
  recording->clock_ = stream.clock;
  recording->device_ = stream.device;
  recording->actor_ = stream.worker.actor();
  const bool queued = stream.worker.enqueue({[recording] { recording->signal(); }, false, true});
  if (!queued) recording->signal();  // the process ends: nobody may wait for what never comes
  return recording;
}

void Runtime::forget_known_locked(std::vector<RecordingPtr>& recordings) const {
  const auto known = [&](const RecordingPtr& r) { return host_clock_.knows(r->actor_, r->clock_.at(r->actor_)); };
  recordings.erase(std::remove_if(recordings.begin(), recordings.end(), known), recordings.end());
}

void Runtime::wait(c10::Stream at, const RecordingPtr& recording) {
  const std::lock_guard lock(mutex_);
  Stream& stream = stream_of(at);
  stream.clock.merge(recording->clock_);
  stream.worker.enqueue({[recording] { recording->wait(); }, false});
}

void Runtime::host_learns(const VectorClock& clock) {
  const std::lock_guard lock(mutex_);
  host_clock_.merge(clock);
  relax_pinned_memory(host_clock_);
}

void Runtime::synchronize(const RecordingPtr& recording) {
  recording->wait();
  host_learns(recording->clock_);
  throw_error(recording->device_);
}

void Runtime::synchronize(c10::Stream stream) { synchronize(record(stream)); }

void Runtime::drain(c10::DeviceIndex index) {
  std::vector<RecordingPtr> recordings;
  {
    const std::lock_guard lock(mutex_);
    const size_t count = device(index).streams.size();
    for (size_t id = 0; id < count; ++id) {
      recordings.push_back(record_locked(make(index < 0 ? current_device() : index, static_cast<c10::StreamId>(id))));
    }
  }
  for (const RecordingPtr& recording : recordings) {
    recording->wait();
    host_learns(recording->clock_);
  }
}

void Runtime::synchronize_device(c10::DeviceIndex index) {
  drain(index);
  throw_error(index < 0 ? current_device() : index);
}

bool Runtime::query(const RecordingPtr& recording) {
  if (!recording->done()) return false;
  host_learns(recording->clock_);
  return true;
}

bool Runtime::query(c10::Stream at) {
  const std::lock_guard lock(mutex_);
  Stream& stream = stream_of(at);
  if (!stream.worker.idle()) return false;
  host_clock_.merge(stream.clock);
  relax_pinned_memory(host_clock_);
  return true;
}

// --- errors

void Runtime::fail(c10::DeviceIndex index, const std::string& message) {
  Device& owner = device(index);
  const std::lock_guard lock(owner.error_mutex);
  if (!owner.error) owner.error = message;
  owner.failed = true;
}

void Runtime::report_hazard(const std::string& message) {
  const std::lock_guard lock(mutex_);
  report_hazard_locked(message);
}

void Runtime::report_hazard_locked(const std::string& message) {
  if (!pending_hazard_) pending_hazard_ = message;
}

void Runtime::throw_pending_locked() {
  if (!pending_hazard_) return;
  const std::string message = *std::exchange(pending_hazard_, std::nullopt);
  TORCH_CHECK(false, "npu hazard: ", message);
}

void Runtime::throw_error(c10::DeviceIndex index) {
  Device& owner = device(index);
  std::optional<std::string> error;
  {
    const std::lock_guard lock(owner.error_mutex);
    error = std::exchange(owner.error, std::nullopt);
    owner.failed = false;
  }
  TORCH_CHECK(!error, "npu: ", *error, " (launches return before they run: this is the first call that waited)");
  const std::lock_guard lock(mutex_);
  throw_pending_locked();
}

}  // namespace pacer::simnpu
