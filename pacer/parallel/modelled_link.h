// One real rank among imagined ones, over a link that is calculated: for measuring and testing when messages travel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pacer/parallel/world.h"

namespace pacer::parallel {

// A message takes latency + bytes / bandwidth behind the ones before it, bytes as Traffic counts them.
struct LinkModel {
  double bytes_per_s = 0;  // 0: any number of bytes takes no time
  double latency_s = 0;
};

struct LinkTimes {
  int64_t messages = 0;
  double link_s = 0;    // that messages were on the link
  double waited_s = 0;  // of that, what the rank waited for: the rest was hidden behind its work
};

// Rank 0 of `ranks`, in this process alone. Waiting sleeps and nothing copies in the background, so a link takes no
// processor from the computation. What the others send is made up, since they do not exist: sums are as if all held
// what this one holds, pieces are copies of this rank's own, and weights of other owners are small numbers.
class ImaginedWorld {
 public:
  ImaginedWorld(int64_t ranks, const LinkModel& link);
  ~ImaginedWorld();
  ImaginedWorld(const ImaginedWorld&) = delete;
  ImaginedWorld& operator=(const ImaginedWorld&) = delete;

  World& world() { return *world_; }
  void set_link(const LinkModel& link);
  LinkTimes times() const;
  void clear_times();

  // Called in program order: when a message is handed over and when the rank begins to wait for it. purpose: as given
  // to ProcessGroup; number: the message's, from 0.
  enum class Event { issued, waited };
  using Observer = std::function<void(Event event, const std::string& purpose, int64_t number)>;
  void observe(Observer observer);

 private:
  class Link;
  class Backend;
  class Message;
  std::shared_ptr<Link> link_;
  std::unique_ptr<World> world_;
};

}  // namespace pacer::parallel
