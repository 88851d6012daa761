#include "pacer/bench/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"

extern char** environ;

namespace pacer::bench {
namespace {

[[noreturn]] void failed(const char* what) {
  throw Error(ErrorKind::resources, std::string(what) + ": " + std::strerror(errno));
}

// The environment of this process with changes, as execve takes it. Made before fork: behind it nothing may allocate.
std::vector<std::string> changed_environment(const std::vector<std::string>& changes) {
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = name_of(*entry);
    if (std::none_of(changes.begin(), changes.end(), [&](const std::string& c) { return name_of(c) == name; })) {
      entries.emplace_back(*entry);
    }
  }
  for (const std::string& change : changes) {
    if (change.find('=') != std::string::npos) entries.push_back(change);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

Ended run_program(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                  double timeout_s) {
  std::vector<std::string> words = arguments, entries = changed_environment(environment);
  const std::vector<char*> argv = pointers(words), envp = pointers(entries);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) failed("pipe");
  Ended ended;
  const double start = wall_seconds();
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) failed("fork");
  if (child == 0) {
    // Ends with this process, whatever ended it; the second check closes the gap before the first call.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::dup2(ends[1], STDOUT_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  char buffer[4096];
  for (bool open = true; open;) {
    const double left = timeout_s <= 0 ? -1.0 : timeout_s - (wall_seconds() - start);
    if (timeout_s > 0 && left <= 0) {
      ended.timed_out = true;
      ::kill(child, SIGKILL);
      break;
    }
    pollfd waiting{ends[0], POLLIN, 0};
    const int ready = ::poll(&waiting, 1, timeout_s <= 0 ? -1 : static_cast<int>(left * 1e3) + 1);
    if (ready < 0 && errno != EINTR) break;
    if (ready <= 0) continue;
    const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
    if (got > 0) {
      if (ended.out.empty()) ended.first_output_s = wall_seconds() - start;
      ended.out.append(buffer, static_cast<size_t>(got));
    }
    open = got > 0 || (got < 0 && errno == EINTR);
  }
  ::close(ends[0]);
  int status = 0;
  rusage used{};
  while (::wait4(child, &status, 0, &used) < 0) {
    if (errno != EINTR) failed("wait4");
  }
  ended.wall_s = wall_seconds() - start;
  ended.cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime);
  ended.peak_rss_mb = static_cast<double>(used.ru_maxrss) * 1024 * 1e-6;
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  if (ended.exit_code == 127) {
    throw Error(ErrorKind::resources, words.front() + " could not be started");
  }
  return ended;
}

}  // namespace pacer::bench
