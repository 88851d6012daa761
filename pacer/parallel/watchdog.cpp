#include "pacer/parallel/watchdog.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <sstream>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/parallel/launch_environment.h"

namespace pacer::parallel {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> asked_to_end{false};
std::atomic<int> watching{0};

void take_note(int) { asked_to_end = true; }

std::string key_of(int64_t rank) { return "watch/" + std::to_string(rank); }

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Note {
  int64_t step = 0, sequence = 0, at_ms = 0;
  std::string what;
};

Note parse(const std::string& text) {
  Note note;
  std::istringstream words(text);
  words >> note.step >> note.sequence >> note.at_ms;
  std::getline(words >> std::ws, note.what);
  return note;
}

// Ends the process where it stands: its own thread is somewhere that does not return.
[[noreturn]] void end(const std::string& message) {
  const int code = static_cast<int>(ErrorKind::communication);
  std::fprintf(stderr, "error: %s\n", message.c_str());
  write_error_file(message, code);
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

Watchdog::Watchdog(int64_t rank, int64_t world, c10::intrusive_ptr<c10d::Store> store,
                   std::shared_ptr<Activity> activity, const WatchdogOptions& options)
    : rank_(rank),
      world_(world),
      store_(std::move(store)),
      activity_(std::move(activity)),
      options_(options),
      seen_at_(Clock::now()) {
  store_->setTimeout(std::chrono::seconds(2));
  if (options_.take_sigterm && watching++ == 0) {
    struct sigaction before{};
    ::sigaction(SIGTERM, nullptr, &before);
    // A program that has its own way to stop keeps it.
    if (before.sa_handler == SIG_DFL) std::signal(SIGTERM, take_note);
  }
  activity_->set_explain([this] { return explain(); });
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  activity_->set_explain({});
  stop_ = true;
  thread_.join();
  if (options_.take_sigterm && --watching == 0) {
    struct sigaction now{};
    ::sigaction(SIGTERM, nullptr, &now);
    if (now.sa_handler == take_note) std::signal(SIGTERM, SIG_DFL);
  }
}

void Watchdog::run() {
  for (Clock::time_point next = Clock::now(); !stop_; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    end_if_asked();
    if (Clock::now() < next) continue;
    next = Clock::now() + options_.period;
    note();
    end_if_stalled(Clock::now());
  }
}

void Watchdog::note() {
  const std::lock_guard lock(mutex_);
  if (!store_lost_.empty()) return;
  const std::string text = std::to_string(activity_->step) + " " + std::to_string(activity_->sequence) + " " +
                           std::to_string(now_ms()) + " " + activity_->what.load();
  try {
    store_->set(key_of(rank_), std::vector<uint8_t>(text.begin(), text.end()));
  } catch (const std::exception& failure) {
    const std::string why = failure.what();
    store_lost_ = why.substr(0, why.find('\n'));
  }
}

std::string Watchdog::explain() {
  note();  // a store that is gone is noticed now
  const std::lock_guard lock(mutex_);
  const auto gone = [&] {
    return "the store's host is gone (" + store_lost_ + "), so nobody knows where the others are";
  };
  if (!store_lost_.empty()) return gone();
  std::string text;
  const int64_t mine = activity_->sequence, silent_after = 6 * options_.period.count() + 1000;
  try {
    for (int64_t rank = 0; rank < world_; ++rank) {
      if (rank == rank_) continue;
      const std::string who = (text.empty() ? "rank " : "; rank ") + std::to_string(rank);
      if (!store_->check({key_of(rank)})) {
        text += who + " never began";
        continue;
      }
      const std::vector<uint8_t> bytes = store_->get(key_of(rank));
      const Note note = parse({bytes.begin(), bytes.end()});
      const std::string place = "step " + std::to_string(note.step) + ", collective " + std::to_string(note.sequence) +
                                " (" + note.what + ")";
      const int64_t silent_ms = now_ms() - note.at_ms;
      if (silent_ms > silent_after) {
        text += who + " gave its last sign of life " + std::to_string(silent_ms / 1000) + " s ago in " + place;
      } else if (note.sequence < mine) {
        text += who + " is behind: " + place;
      }
    }
  } catch (const std::exception& failure) {
    const std::string why = failure.what();
    store_lost_ = why.substr(0, why.find('\n'));
    return gone();
  }
  const std::string own = "this rank is in step " + std::to_string(activity_->step) + ", collective " +
                          std::to_string(mine) + " (" + activity_->what.load() + ")";
  return text.empty() ? own + "; no rank is behind it" : own + "; " + text;
}

void Watchdog::end_if_asked() {
  if (!asked_to_end || !options_.take_sigterm) return;
  log_warning("rank " + std::to_string(rank_) + " is asked to end: " + explain());
  std::fflush(nullptr);
  std::signal(SIGTERM, SIG_DFL);
  ::kill(::getpid(), SIGTERM);
}

void Watchdog::end_if_stalled(Clock::time_point now) {
  const int64_t sequence = activity_->sequence;
  if (sequence != seen_ || !activity_->in_step) {
    seen_ = sequence;
    seen_at_ = now;
    return;
  }
  if (now - seen_at_ < options_.stall) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - seen_at_).count();
  end("rank " + std::to_string(rank_) + " ends itself: nothing has moved in it for " + std::to_string(seconds) +
      " s; " + explain());
}

}  // namespace pacer::parallel
