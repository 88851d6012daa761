#include "pacer/device/streams.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/device/device_memory.h"

namespace pacer::device {
namespace {

class Sites {
 public:
  Sites() {
    const char* text = std::getenv("PACER_DISABLED_SITES");
    if (text == nullptr || *text == '\0') return;
    std::istringstream names(text);
    for (std::string name; std::getline(names, name, ',');) disabled_.insert(name);
    log_warning(std::string("PACER_DISABLED_SITES=") + text + ": these waits are left out and results may be wrong");
  }

  // Whether the call is to be done.
  bool reach(const char* site) {
    const std::lock_guard lock(mutex_);
    reached_.insert(site);
    return !disabled_.contains(site);
  }
  void disable(std::vector<std::string> names) {
    const std::lock_guard lock(mutex_);
    disabled_ = {names.begin(), names.end()};
  }
  std::vector<std::string> reached() {
    const std::lock_guard lock(mutex_);
    return {reached_.begin(), reached_.end()};
  }

 private:
  std::mutex mutex_;
  std::set<std::string, std::less<>> reached_, disabled_;
};

Sites& sites() {
  static Sites& all = *new Sites;
  return all;
}

bool on_host(const c10::Stream& stream) { return stream.device_type() == c10::DeviceType::CPU; }

}  // namespace

c10::Stream current_stream(const Runtime& runtime) {
  return c10::impl::VirtualGuardImpl(runtime.device().type()).getStream(runtime.device());
}

c10::Stream new_stream(const Runtime& runtime) {
  if (runtime.plugin() == nullptr) return current_stream(runtime);
  return c10::impl::VirtualGuardImpl(runtime.device().type()).getStreamFromGlobalPool(runtime.device());
}

bool is_done(const c10::Stream& stream) { return on_host(stream) || stream.query(); }

Event::Event(const Runtime& runtime, bool timed) {
  if (timed && !runtime.can(Capability::event_timing)) {
    throw Error(ErrorKind::device, "device " + runtime.name() + " cannot time events");
  }
  if (runtime.plugin() == nullptr) return;
  event_ = std::make_unique<c10::Event>(runtime.device().type(),
                                        timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(const c10::Stream& stream) {
  if (event_) event_->record(stream);
}

bool Event::is_done() const { return !event_ || event_->query(); }

double Event::elapsed_ms(const Event& later) const {
  if (!event_ || !later.event_) throw Error(ErrorKind::bug, "Event::elapsed_ms on the host");
  return event_->elapsedTime(*later.event_);
}

void wait(const char* site, const c10::Stream& stream, const Event& event) {
  if (sites().reach(site) && event.event_) event.event_->block(stream);
}

void wait(const char* site, const c10::Stream& stream, const c10::Stream& earlier) {
  if (!sites().reach(site) || on_host(stream) || stream == earlier) return;
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(stream);
}

void wait(const char* site, const Event& event) {
  if (sites().reach(site) && event.event_) event.event_->synchronize();
}

void wait(const char* site, const c10::Stream& stream) {
  if (sites().reach(site) && !on_host(stream)) stream.synchronize();
}

void wait(const char* site, c10d::Work& work) {
  if (sites().reach(site)) work.wait();
}

void record_stream(const char* site, const at::Tensor& tensor, const c10::Stream& stream) {
  if (!sites().reach(site) || on_host(stream) || !tensor.defined() || tensor.is_cpu()) return;
  device_allocator(tensor.device()).recordStream(tensor.storage().data_ptr(), stream);
}

void disable_sites(std::vector<std::string> names) { sites().disable(std::move(names)); }
std::vector<std::string> reached_sites() { return sites().reached(); }

}  // namespace pacer::device
