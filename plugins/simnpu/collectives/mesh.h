// Connections between the ranks of one group on one machine: a Unix socket for each pair.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

namespace pacer::simnpu {

// Where ranks find each other. find() does not wait: nothing while the other has not published.
struct Directory {
  std::function<void(const std::string& key, const std::string& value)> publish;
  std::function<std::optional<std::string>(const std::string& key)> find;
};

// What both sides of a message must agree on, so that ranks in different collectives are told and not mixed up.
struct Tag {
  uint64_t number;     // of the collective in its group
  uint32_t operation;  // c10d::OpType
  uint32_t round;      // a collective may exchange more than once
};

class Mesh {
 public:
  using Clock = std::chrono::steady_clock;

  // Listens, and publishes where. Returns at once.
  Mesh(Directory directory, int rank, int size);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  struct Send {
    int rank;
    const void* data;
    size_t bytes;
  };
  struct Receive {
    int rank;
    void* data;
    size_t bytes;
  };
  // Sends and receives all of it, at the same time. At most one message per peer and direction; empty ones are left
  // out on both sides. Connects first where that has not happened. For one thread at a time.
  // Throws std::runtime_error that names the ranks: nothing moved until the deadline, a peer that closed the
  // connection, a peer in another collective, abort(). The mesh is then broken for good.
  void exchange(const Tag& tag, std::vector<Send> sends, std::vector<Receive> receives, Clock::time_point deadline);

  void abort(const std::string& why);  // from any thread; wakes an exchange that waits
  std::optional<std::string> broken() const;

  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  struct Transfer;
  void connect_to(const std::vector<int>& ranks, Clock::time_point deadline);
  void dial(int rank, const std::string& name);
  void accept_one();
  void poll_for(std::vector<pollfd>& waits, Clock::time_point deadline, const std::string& what);
  [[noreturn]] void fail(const std::string& why);

  const Directory directory_;
  const int rank_, size_;
  int listener_ = -1, wake_ = -1;
  std::vector<int> sockets_;  // per rank, -1: not connected
  mutable std::mutex mutex_;
  std::optional<std::string> broken_;
};

}  // namespace pacer::simnpu
