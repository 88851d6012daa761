#include "pacer/parallel/world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <numeric>

#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/device/collectives.h"
#include "pacer/device/kernels.h"
#include "pacer/formats/manifest.h"
#include "pacer/parallel/gloo.h"
#include "pacer/parallel/meeting.h"
#include "pacer/parallel/ownership_plan.h"

namespace pacer::parallel {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Gloo writes to its sockets without MSG_NOSIGNAL: a rank that sends in the moment in which another one dies would be
// ended by the signal, without a word, where it is to say whom it lost. A program's own handler stays.
void survive_broken_connections() {
  struct sigaction present{};
  ::sigaction(SIGPIPE, nullptr, &present);
  if (present.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

c10::intrusive_ptr<c10d::Store> open_store(const LaunchEnvironment& environment, std::chrono::milliseconds timeout) {
  c10::intrusive_ptr<c10d::Store> store;
  if (!environment.store_file.empty()) {
    store = c10::make_intrusive<c10d::FileStore>(environment.store_file, static_cast<int>(environment.world));
  } else {
    c10d::TCPStoreOptions options;
    options.port = environment.master_port;
    options.isServer = environment.rank == 0 && !environment.launcher_hosts_store;
    options.numWorkers = static_cast<size_t>(environment.world);
    options.waitWorkers = false;
    options.timeout = patience_with_store(environment, timeout);
    store = c10::make_intrusive<c10d::TCPStore>(environment.master_address, options);
  }
  store->setTimeout(timeout);
  return store;
}

std::string list_of(const std::vector<int64_t>& ranks) {
  std::string text;
  for (const int64_t rank : ranks) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  return text;
}

// Throws when ranks of several machines would listen where the others do not reach them.
void require_reachable(const LaunchEnvironment& environment) {
  const std::string address = gloo_address(), who = "rank " + std::to_string(environment.rank);
  log_debug(who + " listens at " + address);
  const bool several_machines = environment.local_world < environment.world;
  if (!several_machines || !is_loopback(address) || is_loopback(environment.master_address)) return;
  throw Error(ErrorKind::communication,
              who + " would listen at " + address + ", which other machines do not reach, and there are several: " +
                  std::to_string(environment.local_world) + " of " + std::to_string(environment.world) +
                  " ranks are on this one",
              "name the interface that the machines share: GLOO_SOCKET_IFNAME=eth0");
}

}  // namespace

World::World(const LaunchEnvironment& environment, const WorldOptions& options)
    : environment_(environment), options_(options), place_(device::host_device()) {
  if (environment.world > 1) survive_broken_connections();
  choose_collectives();
  std::vector<int64_t> ranks(static_cast<size_t>(environment.world));
  std::iota(ranks.begin(), ranks.end(), 0);
  try {
    if (environment.launched()) store_ = open_store(environment, options.timeout);
  } catch (const std::exception& failure) {
    throw Error(
        ErrorKind::communication,
        "rank " + std::to_string(rank()) + " does not reach the store at " +
            (environment.store_file.empty() ? environment.master_address + ":" + std::to_string(environment.master_port)
                                            : environment.store_file) +
            ": " + first_line(failure.what()),
        environment.launcher_hosts_store
            ? "TORCHELASTIC_USE_AGENT_STORE says that the launcher serves it there: MASTER_ADDR and MASTER_PORT have "
              "to be those that the launcher set; without that variable rank 0 serves it"
            : "is the process that serves it still there, and is the address right?");
  }
  if (store_ != nullptr) {
    const auto kept = c10::make_intrusive<c10d::PrefixStore>("pacer", store_);
    std::string start;
    try {
      start = meet(*kept, rank(), size(), options.timeout);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& failure) {
      throw Error(ErrorKind::communication,
                  "rank " + std::to_string(rank()) + " lost the store at the meeting: " + first_line(failure.what()),
                  "did the process that serves it end?");
    }
    log_debug("rank " + std::to_string(rank()) + ": start " + start + ", attempt " + environment.attempt);
    store_ = c10::make_intrusive<c10d::PrefixStore>("start/" + start, kept);
    WatchdogOptions watch;
    watch.stall = options.stall.count() > 0 ? options.stall : options.timeout + std::chrono::seconds(20);
    watchdog_ = std::make_unique<Watchdog>(rank(), size(), store_->clone(), activity_, watch);
  }
  all_ = group(ranks, "world");
}

World::~World() = default;

void World::choose_collectives() {
  const auto& runtime = options_.runtime;
  const bool elsewhere = runtime && !device::in_host_memory(runtime->device());
  if (options_.make_backend) {
    if (runtime) place_ = runtime->device();
    return;
  }
  options_.make_backend = make_gloo;
  if (environment_.world == 1) return;
  if (!elsewhere) return require_reachable(environment_);
  const std::string own = device::collectives_name(*runtime);
  if (options_.through_host || own.empty()) {
    if (own.empty()) log_warning("device " + runtime->name() + " brings no collectives");
    log_warning("what ranks on " + runtime->name() + " send goes through host memory over Gloo");
    return require_reachable(environment_);
  }
  place_ = runtime->device();
  options_.make_backend = [runtime = *runtime](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::milliseconds timeout) {
    return device::make_collectives(runtime, store, rank, size, timeout);
  };
}

std::shared_ptr<ProcessGroup> World::group(const std::vector<int64_t>& ranks, const std::string& name) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  const int64_t place = found - ranks.begin();
  std::string prefix = "group/" + name;
  for (const int64_t member : ranks) prefix += "." + std::to_string(member);
  // A second communicator would find the addresses of the first under the same keys of the store.
  std::shared_ptr<ProcessGroup>& group = groups_[prefix];
  if (group != nullptr) return group;
  c10::intrusive_ptr<c10d::Backend> backend;
  if (ranks.size() > 1 && found != ranks.end()) {
    try {
      backend = options_.make_backend(c10::make_intrusive<c10d::PrefixStore>(prefix, store_), static_cast<int>(place),
                                      static_cast<int>(ranks.size()), options_.timeout);
    } catch (const std::exception& failure) {
      throw Error(ErrorKind::communication,
                  "rank " + std::to_string(rank()) + " does not meet the others of group " + name + ": " +
                      first_line(failure.what()),
                  "did every rank start?");
    }
  }
  group = std::make_shared<ProcessGroup>(name, ranks, place, std::move(backend), place_, activity_);
  return group;
}

void World::require_same(const std::string& text, const std::string& what) {
  const std::string key = "compared/" + std::to_string(compared_++);
  const std::string digest = formats::fingerprint(text);
  if (size() == 1) return;
  if (rank() == 0) set(key, text);
  const std::string reference = rank() == 0 ? text : get(key);
  at::Tensor differs = at::zeros({size()}, at::kLong);
  differs[rank()] = reference == text ? 0 : 1;
  all_->sum(differs, "compare").wait();
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < size(); ++i) {
    if (differs[i].item<int64_t>() != 0) ranks.push_back(i);
  }
  if (ranks.empty()) return;
  if (reference != text) {
    throw Error(ErrorKind::usage,
                what + " of rank " + std::to_string(rank()) + " is not that of rank 0:\n" +
                    plan_difference(reference, text, "rank 0", "rank " + std::to_string(rank())),
                "start every rank with the same model, options and version");
  }
  throw Error(ErrorKind::communication, what + " (" + digest + ") differs on " + list_of(ranks),
              "their own messages say what is different");
}

void World::require_success_everywhere(bool fine, const std::string& what) {
  at::Tensor failed = at::zeros({size()}, at::kLong);
  failed[rank()] = fine ? 0 : 1;
  all_->sum(failed, "verdict").wait();
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < size(); ++i) {
    if (failed[i].item<int64_t>() != 0) ranks.push_back(i);
  }
  if (!ranks.empty()) throw Error(ErrorKind::communication, what + " failed on " + list_of(ranks));
}

bool World::lost() const {
  return std::ranges::any_of(groups_, [](const auto& entry) { return entry.second->is_lost(); });
}

Error World::lost_error(const std::string& device_message) const {
  const std::string others = activity_->explain();
  return Error(
      ErrorKind::communication,
      "rank " + std::to_string(rank()) + ": " + first_line(device_message) + (others.empty() ? "" : "; " + others),
      "another rank ended, hangs or never arrived: its own message says why. Start again from the last "
      "checkpoint");
}

void World::set(const std::string& key, const std::string& value) {
  if (store_ == nullptr) throw Error(ErrorKind::bug, "one process alone has no store");
  store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

std::string World::get(const std::string& key) {
  if (store_ == nullptr) throw Error(ErrorKind::bug, "one process alone has no store");
  try {
    const std::vector<uint8_t> bytes = store_->get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception& failure) {
    throw Error(ErrorKind::communication, "rank " + std::to_string(rank()) + " waits for '" + key +
                                              "' in the store: " + first_line(failure.what()));
  }
}

StoreHost::StoreHost() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* general = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || ::bind(listener, general, length) != 0 || ::getsockname(listener, general, &length) != 0) {
    const std::string why = std::strerror(errno);
    if (listener >= 0) ::close(listener);
    throw Error(ErrorKind::communication, "no port on the loopback interface for the store: " + why);
  }
  port_ = ntohs(address.sin_port);
  c10d::TCPStoreOptions options;
  options.port = port_;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener;  // the store closes it
  store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

StoreHost::~StoreHost() = default;

}  // namespace pacer::parallel
