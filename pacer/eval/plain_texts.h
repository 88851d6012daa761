// The plain texts of many prompts, side by side: the bits of one by one, in a fraction of the time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pacer/decode/loop.h"
#include "pacer/decode/sampling.h"
#include "pacer/eval/task.h"
#include "pacer/target/target.h"

namespace pacer::eval {

struct PlainText {
  std::vector<int64_t> tokens;
  decode::Finish finish = decode::Finish::length;
};

// What the texts are made from.
struct PlainTextOptions {
  decode::SamplingOptions sampling;
  int64_t max_turns = 0;  // per prompt, 0: all
  // The ids of a turn, behind the answers of the turns before it.
  std::function<std::vector<int64_t>(const Task& task, const data::Prompt& prompt, size_t turn,
                                     const std::vector<std::string>& answers)>
      encode;
  std::function<std::string(std::span<const int64_t> ids)> decode;
  std::function<uint64_t(const Task& task, const data::Prompt& prompt, size_t turn)> sample;  // whose draws
  std::function<void()> on_text;  // between texts; what it throws ends the work
};

class PlainTexts {
 public:
  // Writes all of them; `tasks` outlives this.
  PlainTexts(const target::Target& target, const std::vector<Task>& tasks, const PlainTextOptions& options);

  // Of a prompt of these tasks, by its address. Throws std::out_of_range for a turn that was not written.
  const PlainText& of(const data::Prompt& prompt, size_t turn) const { return texts_.at({&prompt, turn}); }

 private:
  std::map<std::pair<const data::Prompt*, size_t>, PlainText> texts_;
};

}  // namespace pacer::eval
