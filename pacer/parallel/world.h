// All ranks of a training: how they meet, their groups, and what they agree on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/device/runtime.h"
#include "pacer/parallel/launch_environment.h"
#include "pacer/parallel/process_group.h"
#include "pacer/parallel/watchdog.h"

namespace pacer::parallel {

// As device::Plugin::make_backend: a communicator of `size` ranks.
using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout)>;

struct WorldOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of every collective and of the meeting
  MakeBackend make_backend{};                                    // empty: those of the runtime's device, else Gloo
  // The device of this rank, bound before the ranks meet; none: host memory. A device whose back end brings no
  // collectives sends its tensors through host memory over Gloo, and a warning says so.
  std::optional<device::Runtime> runtime{};
  bool through_host = false;  // Gloo also where the device has collectives of its own
  // How long a step may stand still on a rank before it ends itself; 0: the time-out and 20 s.
  std::chrono::milliseconds stall{0};
};

class World {
 public:
  // Meets the other ranks. Throws Error{communication} when they do not come within the time-out. With more than one
  // rank the process ignores SIGPIPE from here on, unless it handles it: writing to a rank that died is an error, not
  // the end.
  World(const LaunchEnvironment& environment, const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return environment_.rank; }
  int64_t size() const { return environment_.world; }
  ProcessGroup& all() { return *all_; }
  const std::optional<device::Runtime>& runtime() const { return options_.runtime; }
  c10::Device place() const { return place_; }  // whose tensors collectives take without a copy
  const std::shared_ptr<Activity>& activity() const { return activity_; }

  // The group of these ranks of the world, this one among them; the same one when it is asked for again. Every member
  // calls it with the same ranks and name and in the same order; other ranks may make other groups of that name
  // meanwhile.
  std::shared_ptr<ProcessGroup> group(const std::vector<int64_t>& ranks, const std::string& name);

  // Throws on every rank unless all of them hand over the same text: Error{usage} with plan_difference() on those that
  // differ from rank 0, Error{communication} that names them on the others. what: "the ownership plan".
  void require_same(const std::string& text, const std::string& what);

  // Returns when no rank failed; else throws on every rank: Error{communication} that names the ranks that did. Each
  // rank calls it at the same place with its own outcome.
  void require_success_everywhere(bool fine, const std::string& what);

  // Whether a group of this rank is lost, and the Error{communication} of a device that failed for that reason.
  bool lost() const;
  Error lost_error(const std::string& device_message) const;

  // Small values that ranks leave for each other. get() waits for the key until the time-out.
  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key);

 private:
  void choose_collectives();

  LaunchEnvironment environment_;
  WorldOptions options_;
  c10::Device place_;
  std::shared_ptr<Activity> activity_ = std::make_shared<Activity>();
  c10::intrusive_ptr<c10d::Store> store_;  // none for one process alone
  std::unique_ptr<Watchdog> watchdog_;
  std::shared_ptr<ProcessGroup> all_;
  std::map<std::string, std::shared_ptr<ProcessGroup>> groups_;  // by name and ranks
  int64_t compared_ = 0;
};

// A store that a launcher serves for the ranks that it starts, on the loopback interface and on a port that was free.
class StoreHost {
 public:
  StoreHost();
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;
  uint16_t port() const { return port_; }

 private:
  uint16_t port_ = 0;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace pacer::parallel
