// Cases one after the other, each in a process of its own, so that none inherits another's memory or dies with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/bench/benches.h"

namespace pacer::bench {

struct Request {
  std::filesystem::path works{};  // empty: Works::default_file()
  bool all = false;               // every bench that this version can run
  std::string bench{};
  std::vector<std::string> cases{};  // empty: all of the bench
  std::vector<std::string> dtypes{"bf16"};
  Settings settings{};  // dtype is set per case
  int64_t timeout_s = 900;
  bool with_roofline = false;  // also the cases of `roofline` in the same dtypes, from which limits are made
  bool in_process = false;     // one case, here: for profilers and debuggers
};

// Runs the cases in the order of the file and hands over the line of each. A case that ran out of memory, took longer
// than timeout_s or failed gives a line with `status`; the reason is on stderr, too.
// Throws Error{usage} for names that do not exist before anything runs. With in_process a failure is thrown as it is.
void run_benches(const Request& request, const std::function<void(const OrderedJson& line)>& on_line);

// What a request would run: [{"bench", "cases", "available"}] in the order of the file, for --list.
OrderedJson list_benches(const std::filesystem::path& works);

}  // namespace pacer::bench
