#include "pacer/parallel/launcher.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/parallel/launch_environment.h"
#include "pacer/parallel/world.h"

extern char** environ;

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;

// The error files of the ranks; gone with the launcher.
class ErrorFolder {
 public:
  ErrorFolder() {
    std::string name = (fs::temp_directory_path() / "pacer-launch-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error(ErrorKind::resources, "no temporary folder for the ranks' messages: " + name);
    }
    path_ = name;
  }
  ~ErrorFolder() {
    std::error_code ignored;  // a folder left in the temporary place harms nothing
    fs::remove_all(path_, ignored);
  }
  ErrorFolder(const ErrorFolder&) = delete;
  ErrorFolder& operator=(const ErrorFolder&) = delete;
  fs::path of(int64_t rank) const { return path_ / ("rank_" + std::to_string(rank) + ".json"); }

 private:
  fs::path path_;
};

std::string message_in(const fs::path& file) {
  if (!fs::exists(file)) return {};
  const Json value = read_json(file);
  const auto outer = value.find("message");
  if (outer == value.end()) return {};
  return outer->is_object() ? outer->value("message", std::string()) : outer->get<std::string>();
}

// The signals that the loop waits for, blocked from before the first thread is made until it ends.
class BlockedSignals {
 public:
  BlockedSignals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) ::sigaddset(&set_, signal);
    ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  const sigset_t& before() const { return before_; }
  // The signal that came within so many seconds, or 0.
  int wait(double seconds) const {
    const timespec time{static_cast<time_t>(seconds), static_cast<long>((seconds - static_cast<long>(seconds)) * 1e9)};
    const int signal = ::sigtimedwait(&set_, nullptr, &time);
    return signal < 0 ? 0 : signal;
  }

 private:
  sigset_t set_{}, before_{};
};

std::vector<std::string> environment_of_rank(int64_t rank, const LaunchOptions& options, uint16_t port,
                                             const fs::path& error_file) {
  const std::string number = std::to_string(rank), count = std::to_string(options.processes);
  std::vector<std::string> own = {"RANK=" + number,
                                  "LOCAL_RANK=" + number,
                                  "WORLD_SIZE=" + count,
                                  "LOCAL_WORLD_SIZE=" + count,
                                  "GROUP_RANK=0",
                                  "MASTER_ADDR=127.0.0.1",
                                  "MASTER_PORT=" + std::to_string(port),
                                  "TORCHELASTIC_USE_AGENT_STORE=True",
                                  "TORCHELASTIC_RESTART_COUNT=0",
                                  "TORCHELASTIC_MAX_RESTARTS=0",
                                  "TORCHELASTIC_ERROR_FILE=" + error_file.string()};
  // Several ranks share the machine: without this each would take all of it, and talk past the loopback interface.
  // c10d prints native stacks as warnings when a connection is lost, which Pacer says in a sentence.
  for (const auto& [name, value] : {std::pair{"OMP_NUM_THREADS", "1"},
                                    {"OMP_WAIT_POLICY", "passive"},
                                    {"GLOO_SOCKET_IFNAME", "lo"},
                                    {"TORCH_CPP_LOG_LEVEL", "ERROR"}}) {
    if (!environment_variable(name)) own.push_back(std::string(name) + "=" + value);
  }
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = name_of(*entry);
    if (std::none_of(own.begin(), own.end(), [&](const std::string& o) { return name_of(o) == name; })) {
      own.emplace_back(*entry);
    }
  }
  return own;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

pid_t start(const std::vector<std::string>& command, std::vector<std::string> environment, const sigset_t& mask) {
  std::vector<std::string> words = command;
  const std::vector<char*> argv = pointers(words), envp = pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorKind::resources, std::string("a rank could not be started: ") + std::strerror(errno));
  if (child > 0) return child;
  // Only what POSIX allows between fork and exec. The second check closes the gap before the first call.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::execvpe(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

class Ranks {
 public:
  void add(pid_t process) { processes_.push_back(process); }
  void signal(int number) const {
    for (const pid_t process : processes_) {
      if (process > 0) ::kill(process, number);  // not reaped yet, so the number is still its own
    }
  }
  bool any() const {
    return std::any_of(processes_.begin(), processes_.end(), [](pid_t process) { return process > 0; });
  }
  // Reaps what has ended; calls `ended` with rank and exit code for ranks, not for orphans of theirs.
  template <class Ended>
  void reap(const Ended& ended) {
    int status = 0;
    for (pid_t process; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = std::find(processes_.begin(), processes_.end(), process);
      if (found == processes_.end()) continue;
      *found = 0;
      ended(found - processes_.begin(), WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
  }

 private:
  std::vector<pid_t> processes_;
};

}  // namespace

LaunchResult launch(const std::vector<std::string>& command, const LaunchOptions& options) {
  if (options.processes < 1) throw Error(ErrorKind::usage, "launch: at least one process is needed");
  if (command.empty()) {
    throw Error(ErrorKind::usage, "launch: no command is given", "pacer launch -n 2 -- pacer gate");
  }
  const BlockedSignals signals;
  const ErrorFolder errors;
  const StoreHost store;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a killed rank leaves behind is reaped here
  Ranks ranks;
  LaunchResult result;
  try {
    for (int64_t rank = 0; rank < options.processes; ++rank) {
      ranks.add(start(command, environment_of_rank(rank, options, store.port(), errors.of(rank)), signals.before()));
    }
  } catch (const Error&) {
    ranks.signal(SIGKILL);
    while (ranks.any()) ranks.reap([](int64_t, int) {}), signals.wait(0.05);
    throw;
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double terminate_at = kNever, kill_at = kNever;
  while (ranks.any()) {
    const int signal = signals.wait(0.5);
    const double now = wall_seconds();
    if ((signal == SIGINT || signal == SIGTERM) && result.signal == 0) {
      result.signal = signal;
      ranks.signal(signal);
      kill_at = now + options.kill_s;
    }
    ranks.reap([&](int64_t rank, int code) {
      if (code == 0) return;
      // A rank that lost the others is a witness; one that failed in another way, and was not sent away, is the cause.
      constexpr int kWitness = static_cast<int>(ErrorKind::communication);
      const bool cause = code != kWitness && kill_at == kNever;
      if (result.failed_rank >= 0 && !(result.exit_code == kWitness && cause)) return;
      result.failed_rank = rank;
      result.exit_code = code;
      terminate_at = now + options.grace_s;
    });
    if (now >= terminate_at) {
      ranks.signal(SIGTERM);
      terminate_at = kNever;
      kill_at = std::min(kill_at, now + options.kill_s);
    }
    if (now >= kill_at) {
      ranks.signal(SIGKILL);
      kill_at = now + options.kill_s;
    }
  }
  if (result.failed_rank >= 0) result.message = message_in(errors.of(result.failed_rank));
  return result;
}

}  // namespace pacer::parallel
