#include "pacer/train/stop_signal.h"

#include "pacer/base/error.h"

namespace pacer::train {
namespace {

constexpr int kSignals[3] = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t received_signal = 0;  // all that a handler may touch

void note(int number) { received_signal = number; }

}  // namespace

StopSignal::StopSignal() {
  received_signal = 0;
  struct sigaction action{};
  action.sa_handler = note;
  ::sigemptyset(&action.sa_mask);
  // Reset after the first: a person who presses Ctrl-C twice means it.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (int i = 0; i < 3; ++i) {
    if (::sigaction(kSignals[i], nullptr, &before_[i]) != 0) throw Error(ErrorKind::bug, "sigaction failed");
    // nohup and shells in scripts start programs with a signal ignored: it was decided outside that it does not count.
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

int StopSignal::received() { return received_signal; }

}  // namespace pacer::train
