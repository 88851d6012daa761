#include "plugins/simnpu/collectives/mesh.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <stdexcept>
#include <utility>

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace pacer::simnpu {
namespace {

// How often a rank that has not published yet is asked for.
constexpr int kAskAgainMilliseconds = 2;

std::runtime_error system_error(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

// An abstract name: no file to clean up after a rank that died.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof(address.sun_path) - 1));
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

std::string fresh_name() {
  std::random_device random;
  return "pacer-simnpu-" + std::to_string(getpid()) + "-" + std::to_string(random()) + std::to_string(random());
}

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

struct Header {
  uint64_t number;
  uint32_t operation, round;
  uint64_t bytes;
};

}  // namespace

// One message on its way; the header goes first.
struct Mesh::Transfer {
  int rank;
  bool sending;
  Header header;
  char* data;
  size_t done = 0;

  size_t total() const { return sizeof(Header) + header.bytes; }
  bool finished() const { return done == total(); }
  iovec next(Header& buffer) const {
    if (done < sizeof(Header)) return {reinterpret_cast<char*>(&buffer) + done, sizeof(Header) - done};
    return {data + (done - sizeof(Header)), total() - done};
  }
};

Mesh::Mesh(Directory directory, int rank, int size)
    : directory_(std::move(directory)), rank_(rank), size_(size), sockets_(static_cast<size_t>(size), -1) {
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const std::string name = fresh_name();
  const auto [address, length] = address_of(name);
  if (listener_ < 0 || wake_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener_, size) != 0) {
    throw system_error("HCCL: a socket for rank " + std::to_string(rank));
  }
  directory_.publish("rank" + std::to_string(rank_), name);
}

Mesh::~Mesh() {
  for (const int socket : sockets_) {
    if (socket >= 0) close(socket);
  }
  if (listener_ >= 0) close(listener_);
  if (wake_ >= 0) close(wake_);
}

void Mesh::abort(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_) broken_ = why;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

std::optional<std::string> Mesh::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

void Mesh::fail(const std::string& why) {
  abort(why);
  // Peers that wait for this rank see the end at once and not only at their deadline.
  for (int& socket : sockets_) {
    if (socket >= 0) close(std::exchange(socket, -1));
  }
  throw std::runtime_error(*broken());
}

void Mesh::poll_for(std::vector<pollfd>& waits, Clock::time_point deadline, const std::string& what) {
  if (broken()) fail(*broken());
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (left <= 0) fail("timed out " + what);
  waits.push_back({wake_, POLLIN, 0});
  const bool asks = what.rfind("to meet", 0) == 0;
  const int ready =
      poll(waits.data(), waits.size(),
           static_cast<int>(asks ? std::min<long>(left, kAskAgainMilliseconds) : std::min<long>(left, 1 << 20)));
  if (ready < 0 && errno != EINTR) fail(std::string("poll: ") + std::strerror(errno));
  waits.pop_back();
  if (broken()) fail(*broken());
}

// The higher rank of a pair dials and says who it is.
void Mesh::dial(int rank, const std::string& name) {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made < 0) fail(std::string("socket: ") + std::strerror(errno));
  const auto [address, length] = address_of(name);
  const int32_t me = rank_;
  if (connect(made, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      send(made, &me, sizeof me, MSG_NOSIGNAL) != sizeof me) {
    const std::string why = std::strerror(errno);
    close(made);
    fail("rank " + std::to_string(rank) + " cannot be reached: " + why);
  }
  sockets_[static_cast<size_t>(rank)] = made;
}

void Mesh::accept_one() {
  const int made = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (made < 0) return;
  int32_t who = -1;
  if (recv(made, &who, sizeof who, MSG_WAITALL) != sizeof who || who <= rank_ || who >= size_) {
    close(made);
    fail("a connection from somebody who is no rank of this group");
  }
  sockets_[static_cast<size_t>(who)] = made;
}

void Mesh::connect_to(const std::vector<int>& ranks, Clock::time_point deadline) {
  for (;;) {
    std::vector<int> missing;
    for (const int rank : ranks) {
      if (sockets_[static_cast<size_t>(rank)] >= 0) continue;
      if (rank < rank_) {
        if (const auto name = directory_.find("rank" + std::to_string(rank))) {
          dial(rank, *name);
          continue;
        }
      }
      missing.push_back(rank);
    }
    if (missing.empty()) return;
    std::vector<pollfd> waits = {{listener_, POLLIN, 0}};
    poll_for(waits, deadline, "to meet: waited for " + list(missing));
    if (waits[0].revents & POLLIN) accept_one();
  }
}

void Mesh::exchange(const Tag& tag, std::vector<Send> sends, std::vector<Receive> receives,
                    Clock::time_point deadline) {
  std::vector<Transfer> transfers;
  std::vector<int> peers;
  const auto add = [&](int rank, bool sending, void* data, size_t bytes) {
    if (bytes == 0) return;
    transfers.push_back({rank, sending, {tag.number, tag.operation, tag.round, bytes}, static_cast<char*>(data)});
    peers.push_back(rank);
  };
  for (const Send& message : sends) add(message.rank, true, const_cast<void*>(message.data), message.bytes);
  for (const Receive& message : receives) add(message.rank, false, message.data, message.bytes);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  if (broken()) fail(*broken());
  connect_to(peers, deadline);

  std::vector<Header> incoming(transfers.size());
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<size_t> who;
    std::vector<int> late;
    for (size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& transfer = transfers[i];
      if (transfer.finished()) continue;
      const auto events = static_cast<short>(transfer.sending ? POLLOUT : POLLIN);
      waits.push_back({sockets_[static_cast<size_t>(transfer.rank)], events, 0});
      who.push_back(i);
      late.push_back(transfer.rank);
    }
    if (waits.empty()) return;
    std::sort(late.begin(), late.end());
    late.erase(std::unique(late.begin(), late.end()), late.end());
    poll_for(waits, deadline, "waiting for " + list(late));
    for (size_t w = 0; w < who.size(); ++w) {
      if (waits[w].revents == 0) continue;
      Transfer& transfer = transfers[who[w]];
      Header& header = transfer.sending ? transfer.header : incoming[who[w]];
      const iovec part = transfer.next(header);
      const ssize_t moved = transfer.sending
                                ? send(waits[w].fd, part.iov_base, part.iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : recv(waits[w].fd, part.iov_base, part.iov_len, MSG_DONTWAIT);
      const std::string peer = "rank " + std::to_string(transfer.rank);
      const bool closed = moved == 0 || (moved < 0 && (errno == ECONNRESET || errno == EPIPE));
      if (closed) fail(peer + " closed the connection: it has ended or failed");
      if (moved < 0) {
        if (errno == EAGAIN || errno == EINTR) continue;
        fail(peer + " is gone: " + std::strerror(errno));
      }
      transfer.done += static_cast<size_t>(moved);
      if (!transfer.sending && transfer.done == sizeof(Header) &&
          std::memcmp(&header, &transfer.header, sizeof(Header)) != 0) {
        fail(peer + " is in another collective: number " + std::to_string(header.number) + " of its group, operation " +
             std::to_string(header.operation) + " with " + std::to_string(header.bytes) + " bytes; here it is number " +
             std::to_string(tag.number) + ", operation " + std::to_string(tag.operation) + " with " +
             std::to_string(transfer.header.bytes) + " bytes");
      }
    }
  }
}

}  // namespace pacer::simnpu
