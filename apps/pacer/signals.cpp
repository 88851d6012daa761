#include "apps/pacer/signals.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "pacer/base/error.h"

namespace pacer::cli {
namespace {

// In a signal handler: only what POSIX allows there.
void lost_file(int) {
  constexpr std::string_view kText =
      "error: a file that was being read became shorter, or its disk failed\n"
      "hint: do not change models and data while they are in use; fetch or copy the file again\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(static_cast<int>(ErrorKind::data));
}

}  // namespace

void take_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGBUS, lost_file);
}

void end_as_asked(int signal) {
  if (signal == 0) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace pacer::cli
