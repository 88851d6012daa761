#include "tests/cli/program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "pacer/base/files.h"
#include "tests/support/files.h"

namespace pacer::cli {

namespace {

struct How {
  std::vector<std::string> environment{};
  int signal = 0;
  double seconds = 0;
  uint64_t file_bytes = 0;
  std::string out{};
};

void set_environment(const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) {
      ::unsetenv(entry.c_str());
    } else {
      ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
  }
}

Outcome run(const std::vector<std::string>& arguments, const How& how) {
  const test::TemporaryFolder folder;
  const std::string own_out = (folder.path() / "out").string(), error = (folder.path() / "error").string();
  const std::string out = how.out.empty() ? own_out : how.out;
  std::vector<std::string> words = {PACER_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    set_environment(how.environment);
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, 0600), 1);
    ::dup2(::open(error.c_str(), O_WRONLY | O_CREAT, 0600), 2);
    if (how.file_bytes > 0) {
      const rlimit limit{how.file_bytes, how.file_bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  if (how.signal != 0) {
    ::usleep(static_cast<useconds_t>(how.seconds * 1e6));
    ::kill(child, how.signal);  // a zombie until it is waited for: never somebody else
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, how.out.empty() ? read_file(out) : std::string(), read_file(error)};
}

}  // namespace

Outcome pacer(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  return run(arguments, {.environment = environment});
}

Outcome pacer_killed(const std::vector<std::string>& arguments, int signal, double seconds) {
  return run(arguments, {.environment = {"OMP_WAIT_POLICY=passive"}, .signal = signal, .seconds = seconds});
}

Outcome pacer_into(const std::string& file, const std::vector<std::string>& arguments) {
  return run(arguments, {.environment = {}, .out = file});
}

Outcome pacer_on_full_disk(const std::vector<std::string>& arguments, uint64_t file_bytes) {
  return run(arguments, {.environment = {}, .file_bytes = file_bytes});
}

}  // namespace pacer::cli
