#include "pacer/device/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "pacer/base/error.h"

extern char** environ;

namespace pacer::device {
namespace {

constexpr std::chrono::seconds kMost{60};

[[noreturn]] void fail(const std::string& what, int code) {
  throw Error(ErrorKind::resources, what + ": " + std::strerror(code));
}

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("a pipe to a child process", errno);
    read_end = ends[0], write_end = ends[1];
  }
  ~Pipe() {
    if (read_end >= 0) ::close(read_end);
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_write() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

// Reads both until they end or time is up; false then.
bool read_all(const Pipe& out, const Pipe& error, std::string& out_text, std::string& error_text) {
  const auto until = std::chrono::steady_clock::now() + kMost;
  std::array<pollfd, 2> watched = {{{out.read_end, POLLIN, 0}, {error.read_end, POLLIN, 0}}};
  int open = 2;
  while (open > 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (::poll(watched.data(), watched.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) {
      fail("waiting for a child process", errno);
    }
    for (size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].fd < 0 || watched[i].revents == 0) continue;
      std::array<char, 4096> buffer{};
      const ssize_t count = ::read(watched[i].fd, buffer.data(), buffer.size());
      if (count > 0) {
        (i == 0 ? out_text : error_text).append(buffer.data(), static_cast<size_t>(count));
      } else if (count == 0 || errno != EINTR) {
        watched[i].fd = -1;
        --open;
      }
    }
  }
  return true;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

}  // namespace

Ended run_child(const std::vector<std::string>& command) {
  Pipe out, error;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, error.write_end, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int code = ::posix_spawn(&child, command.front().c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code != 0) fail(command.front() + " cannot be started", code);
  out.close_write(), error.close_write();

  Ended ended;
  std::string error_text;
  if (!read_all(out, error, ended.out, error_text)) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ended.error = last_line(std::move(error_text));
  if (WIFSIGNALED(status)) {
    ended.signal = WTERMSIG(status);
  } else {
    ended.exit_code = WEXITSTATUS(status);
  }
  return ended;
}

}  // namespace pacer::device
