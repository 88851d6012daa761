#include "pacer/parallel/meeting.h"

#include <algorithm>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "pacer/base/error.h"

namespace pacer::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRoll = "meeting/roll";

std::string word_key(int64_t rank) { return "meeting/word/" + std::to_string(rank); }
// Of the rank that has found its word in the roll of this rank 0.
std::string seen_key(const std::string& first, const std::string& word) { return "meeting/seen/" + first + "/" + word; }

std::string random_word() {
  std::random_device device;
  std::ostringstream text;
  text << std::hex << device() << device();
  return text.str();
}

void write(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

// "" while there is nothing under the key.
std::string read(c10d::Store& store, const std::string& key) {
  if (!store.check({key})) return {};
  const std::vector<uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::chrono::milliseconds patience_with_store(const LaunchEnvironment& environment, std::chrono::milliseconds timeout) {
  return environment.launcher_hosts_store ? std::min(timeout, std::chrono::milliseconds(std::chrono::seconds(30)))
                                          : timeout;
}

std::string meet(c10d::Store& store, int64_t rank, int64_t world, std::chrono::milliseconds timeout) {
  const std::string own = random_word();
  const Clock::time_point end = Clock::now() + timeout;
  write(store, word_key(rank), own);
  for (std::chrono::milliseconds pause(1);; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    std::string missing;
    const auto lacks = [&](int64_t who) { missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(who); };
    if (rank == 0) {
      std::string roll = own;
      for (int64_t other = 1; other < world; ++other) {
        const std::string word = read(store, word_key(other));
        roll += " " + (word.empty() ? "-" : word);
        if (word.empty() || !store.check({seen_key(own, word)})) lacks(other);
      }
      if (missing.empty()) return own;
      if (read(store, kRoll) != roll) write(store, kRoll, roll);
    } else {
      const auto roll = words_of(read(store, kRoll));
      if (static_cast<int64_t>(roll.size()) == world && roll[static_cast<size_t>(rank)] == own) {
        write(store, seen_key(roll[0], own), "yes");
        return roll[0];
      }
      lacks(0);
    }
    if (Clock::now() >= end) {
      throw Error(ErrorKind::communication,
                  "rank " + std::to_string(rank) + " waited " + std::to_string(timeout.count() / 1000) + " s for " +
                      missing + ", which did not come to the meeting",
                  "did every rank start, and does what it does first take longer than the time-out?");
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace pacer::parallel
