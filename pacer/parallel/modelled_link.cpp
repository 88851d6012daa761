#include "pacer/parallel/modelled_link.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/random.h"
#include "pacer/parallel/meeting.h"

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The folder of the store, which only the rank itself reads.
class StoreFolder {
 public:
  StoreFolder() {
    std::string name = (fs::temp_directory_path() / "pacer-imagined-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error(ErrorKind::resources, "no temporary folder for a store: " + name);
    }
    path_ = name;
  }
  ~StoreFolder() {
    std::error_code ignored;  // a folder left in the temporary place harms nothing
    fs::remove_all(path_, ignored);
  }
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Numbers like those of fresh weights, over and over.
void fill_like_weights(const at::Tensor& tensor) {
  if (!at::isFloatingType(tensor.scalar_type()) || tensor.numel() == 0) return;
  constexpr int64_t kPeriod = 4096 - 1;  // no divisor of usual widths, so that rows differ
  static const at::Tensor numbers = [] {
    at::Tensor values = at::empty({kPeriod}, at::kFloat);
    const RandomStream stream(1, Purpose::test);
    float* out = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < kPeriod; ++i) out[i] = static_cast<float>(0.02 * stream.normal(static_cast<uint64_t>(i)));
    return values;
  }();
  const at::Tensor period = numbers.to(tensor.scalar_type());
  const auto* from = static_cast<const char*>(period.const_data_ptr());
  auto* to = static_cast<char*>(tensor.mutable_data_ptr());
  for (size_t done = 0, all = tensor.nbytes(); done < all; done += period.nbytes()) {
    std::memcpy(to + done, from, std::min(all - done, static_cast<size_t>(period.nbytes())));
  }
}

}  // namespace

class ImaginedWorld::Link {
 public:
  StoreFolder folder;
  std::shared_ptr<Activity> activity;  // names what a message is for; set once the world is there
  LinkModel model;
  LinkTimes times;
  Observer observer;

  // Puts a message behind the others and returns when it will have arrived.
  Clock::time_point send(double bytes) {
    const double seconds = model.latency_s + (model.bytes_per_s > 0 ? bytes / model.bytes_per_s : 0);
    free_at_ = std::max(free_at_, Clock::now()) +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    times.link_s += seconds;
    return free_at_;
  }
  void tell(Event event, const std::string& purpose, int64_t number) const {
    if (observer) observer(event, purpose, number);
  }
  std::string purpose() const { return activity == nullptr ? std::string("starting up") : activity->what.load(); }

 private:
  Clock::time_point free_at_;
};

class ImaginedWorld::Message : public c10d::Work {
 public:
  Message(std::shared_ptr<Link> link, Clock::time_point arrives)
      : link_(std::move(link)), purpose_(link_->purpose()), number_(link_->times.messages++), arrives_(arrives) {
    link_->tell(Event::issued, purpose_, number_);
  }
  bool isCompleted() override { return Clock::now() >= arrives_; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override {
    link_->tell(Event::waited, purpose_, number_);
    const std::chrono::duration<double> left = arrives_ - Clock::now();
    link_->times.waited_s += std::max(0.0, left.count());
    std::this_thread::sleep_until(arrives_);
    return true;
  }

 private:
  std::shared_ptr<Link> link_;
  std::string purpose_;
  int64_t number_;
  Clock::time_point arrives_;
};

class ImaginedWorld::Backend : public c10d::Backend {
 public:
  Backend(int rank, int size, std::shared_ptr<Link> link) : c10d::Backend(rank, size), link_(std::move(link)) {}
  const std::string getBackendName() const override { return "imagined"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    if (options.rootRank != rank_) fill_like_weights(tensors[0]);
    return sent(others() * bytes(tensors[0]));
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    tensors[0].mul_(size_);
    return sent(2 * others() * bytes(tensors[0]));
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& all, at::Tensor& mine,
                                                 const c10d::AllgatherOptions&) override {
    all.view({size_, -1}).copy_(mine.view({1, -1}));
    return sent(others() * bytes(all));
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& received, at::Tensor& sent_values,
                                               std::vector<int64_t>& received_sizes, std::vector<int64_t>& sent_sizes,
                                               const c10d::AllToAllOptions&) override {
    const int64_t own = sent_sizes[static_cast<size_t>(rank_)];
    int64_t begin = 0, offset = 0;
    for (int i = 0; i < rank_; ++i) begin += sent_sizes[static_cast<size_t>(i)];
    const at::Tensor piece = sent_values.narrow(0, begin, own);
    for (const int64_t count : received_sizes) {
      const int64_t copied = std::min(count, own);
      received.narrow(0, offset, copied).copy_(piece.narrow(0, 0, copied));
      fill_like_weights(received.narrow(0, offset + copied, count - copied));
      offset += count;
    }
    return sent(static_cast<double>(sent_values.numel() - own) * static_cast<double>(sent_values.element_size()));
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override { return sent(0); }

 private:
  double others() const { return static_cast<double>(size_ - 1) / static_cast<double>(size_); }
  static double bytes(const at::Tensor& tensor) { return static_cast<double>(tensor.nbytes()); }
  c10::intrusive_ptr<c10d::Work> sent(double bytes) {
    const Clock::time_point arrives = link_->send(bytes);
    return c10::make_intrusive<Message>(link_, arrives);
  }

  std::shared_ptr<Link> link_;
};

ImaginedWorld::ImaginedWorld(int64_t ranks, const LinkModel& link) : link_(std::make_shared<Link>()) {
  link_->model = link;
  LaunchEnvironment environment;
  environment.rank = 0;
  environment.world = ranks;
  environment.store_file = (link_->folder.path() / "store").string();
  WorldOptions options;
  options.make_backend = [shared = link_](const c10::intrusive_ptr<c10d::Store>&, int rank, int size,
                                          std::chrono::milliseconds) {
    return c10::make_intrusive<Backend>(rank, size, shared);
  };
  // A rank begins when all have met, so the imagined ones come to the meeting and leave.
  std::vector<std::jthread> others;
  for (int64_t rank = 1; rank < ranks; ++rank) {
    others.emplace_back([file = environment.store_file, rank, ranks] {
      try {
        c10d::PrefixStore store("pacer", c10::make_intrusive<c10d::FileStore>(file, -1));
        meet(store, rank, ranks, std::chrono::minutes(1));
      } catch (const std::exception& failure) {
        // An error is rank 0's to throw, which waits for the same meeting.
        log_debug("imagined rank " + std::to_string(rank) + ": " + failure.what());
      }
    });
  }
  world_ = std::make_unique<World>(environment, options);
  link_->activity = world_->activity();
}

ImaginedWorld::~ImaginedWorld() = default;

void ImaginedWorld::set_link(const LinkModel& link) { link_->model = link; }
LinkTimes ImaginedWorld::times() const { return link_->times; }
void ImaginedWorld::clear_times() { link_->times = {}; }
void ImaginedWorld::observe(Observer observer) { link_->observer = std::move(observer); }

}  // namespace pacer::parallel
