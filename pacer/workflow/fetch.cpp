#include "pacer/workflow/fetch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pacer/base/error.h"
#include "pacer/base/resources.h"

namespace pacer::workflow {
namespace {

// Runs a program without a shell; its stderr stays the user's, its stdout is returned.
std::string output_of(const std::filesystem::path& program, const std::string& argument, int& status) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorKind::resources, std::string("pipe: ") + std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorKind::resources, std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::execl(program.c_str(), program.c_str(), argument.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (got > 0) output.append(buffer, static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  ::close(ends[0]);
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return output;
}

}  // namespace

std::filesystem::path fetch_package(const std::string& name) {
  const std::filesystem::path script = resource("tools/fetch.sh");
  int status = 0;
  std::string output = output_of(script, name, status);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  const size_t line = output.rfind('\n');
  const std::filesystem::path folder = line == std::string::npos ? output : output.substr(line + 1);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !std::filesystem::is_directory(folder)) {
    throw Error(ErrorKind::resources, "the package '" + name + "' could not be fetched by " + script.string(),
                "see the lines above; with a model of your own: --model PATH");
  }
  return folder;
}

}  // namespace pacer::workflow
