// Collectives of some ranks, over whatever back end the device has; every byte of payload is counted here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace pacer::parallel {

// What this rank is in the middle of, for the watchdog: written by the rank's own thread, read by another.
struct Activity {
  std::atomic<int64_t> step{0}, sequence{0};     // sequence counts collectives of all groups
  std::atomic<const char*> what{"starting up"};  // a literal
  std::atomic<bool> in_step{false};              // from the first forward of a step to its end

  // One line about where all ranks are, for messages; "" while nobody watches.
  std::string explain() {
    const std::lock_guard lock(mutex_);
    return explain_ ? explain_() : std::string();
  }
  void set_explain(std::function<std::string()> function) {
    const std::lock_guard lock(mutex_);
    explain_ = std::move(function);
  }

 private:
  std::mutex mutex_;
  std::function<std::string()> explain_;
};

// A collective that has begun. Its tensors are kept until it was waited for.
class Pending {
 public:
  Pending() = default;
  // Returns when the result may be used. Throws Error{communication} that says which collective failed and why; the
  // group is then lost. Further calls return at once.
  void wait();
  bool empty() const { return state_ == nullptr; }

 private:
  friend class ProcessGroup;
  struct State;
  std::shared_ptr<State> state_;
};

struct Traffic {
  int64_t calls = 0;
  // Bytes that this rank sends, where an algorithm is free to choose who sends as the mean over the ranks. With g ranks
  // and a payload of P bytes: broadcast and all-gather P (g - 1) / g, all-reduce 2 P (g - 1) / g; exchange and send
  // what really goes to others.
  double bytes = 0;
};

// Every rank of a group makes the same calls in the same order. Tensors are contiguous and must not be touched between
// a call and the wait(). Those that do not lie where the back end works (`place`) travel by a copy there, which wait()
// copies back. `purpose` is a literal that names the work in traffic() and in messages ("reduce", "publish"). A group
// of one rank needs no back end and calls none.
class ProcessGroup {
 public:
  // ranks: the members by their rank in the world, ascending order not needed; rank: this one's place among them.
  // place: the device whose tensors the back end takes.
  ProcessGroup(std::string name, std::vector<int64_t> ranks, int64_t rank, c10::intrusive_ptr<c10d::Backend> backend,
               c10::Device place, std::shared_ptr<Activity> activity);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  const std::string& name() const { return name_; }

  // tensor of `root` becomes everybody's; root is a place in this group.
  [[nodiscard]] Pending broadcast(at::Tensor tensor, int64_t root, const char* purpose);
  // The elementwise sum in place. Exact for integers; in floating point the order is the back end's. Devices refuse
  // float64, bool and uint8: sum_exact() is for float64.
  [[nodiscard]] Pending sum(at::Tensor tensor, const char* purpose);
  // f64 in host memory, of which no more than one rank's element is not +0 at each place: everybody gets that one, bit
  // for bit. The bits travel as whole numbers.
  [[nodiscard]] Pending sum_exact(at::Tensor tensor, const char* purpose);
  // all [size * n], mine [n]: everybody's pieces by place in the group.
  [[nodiscard]] Pending all_gather(at::Tensor all, at::Tensor mine, const char* purpose);
  // received and sent are flat; piece i of `sent` (sent_sizes[i] elements) goes to place i, and piece i of `received`
  // comes from it. The sizes agree between each two ranks. Pieces of zero elements are allowed.
  [[nodiscard]] Pending exchange(at::Tensor received, std::vector<int64_t> received_sizes, at::Tensor sent,
                                 std::vector<int64_t> sent_sizes, const char* purpose);
  void barrier(const char* purpose);

  // Whether the back end says that this group cannot be used any more. Where a call returns before its work is done, a
  // lost group is what makes a later call of the device fail.
  bool is_lost() const;

  // "PURPOSE/OPERATION" -> what it moved since the last clear.
  const std::map<std::string, Traffic>& traffic() const { return traffic_; }
  void clear_traffic() { traffic_.clear(); }

 private:
  enum class Use { read, written, both };
  struct Operand {
    at::Tensor tensor;
    Use use;
  };
  template <class Start>
  Pending start(const char* operation, const char* purpose, double bytes, const std::vector<Operand>& operands,
                const Start& call);

  std::string name_;
  std::vector<int64_t> ranks_;
  int64_t rank_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::Device place_;
  std::shared_ptr<Activity> activity_;
  std::map<std::string, Traffic> traffic_;
};

}  // namespace pacer::parallel
