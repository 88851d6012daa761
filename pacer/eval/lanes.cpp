#include "pacer/eval/lanes.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>

#include "pacer/base/error.h"

namespace pacer::eval {
namespace {

struct Ended {};  // another lane failed

std::vector<Task> dealt(const std::vector<Task>& tasks, size_t lane, size_t lanes) {
  std::vector<Task> mine;
  for (const Task& task : tasks) {
    mine.push_back(task);
    mine.back().prompts.clear();
    for (size_t i = lane; i < task.prompts.size(); i += lanes) mine.back().prompts.push_back(task.prompts[i]);
  }
  return mine;
}

// The turns of each prompt follow each other; the first turn of the next begins with number 0.
std::vector<std::vector<TurnResult>> by_prompt(std::vector<TurnResult> turns) {
  std::vector<std::vector<TurnResult>> prompts;
  for (TurnResult& turn : turns) {
    if (turn.turn == 0) prompts.emplace_back();
    prompts.back().push_back(std::move(turn));
  }
  return prompts;
}

}  // namespace

std::vector<TaskResult> measure_in_lanes(const target::Target& target,
                                         const std::function<std::unique_ptr<draft::Proposer>()>& make_draft,
                                         const std::vector<Task>& tasks, const Words& words,
                                         const MeasureOptions& options, int lanes) {
  if (lanes < 1 || options.pace != PaceUse::off) {
    throw Error(ErrorKind::usage,
                "measuring in " + std::to_string(lanes) +
                    " lanes: at least one is needed, and no pacing rule, which learns from text to text");
  }
  std::vector<std::vector<TaskResult>> parts(static_cast<size_t>(lanes));
  std::mutex progress_lock;
  Progress progress;
  for (const Task& task : tasks) progress.total += static_cast<int64_t>(task.prompts.size());
  std::atomic<bool> failed = false;
  std::exception_ptr failure;
  const auto work = [&](size_t lane) {
    try {
      at::set_num_threads(1);  // of this thread alone
      MeasureOptions own = options;
      own.plain_in_batch = true;
      int64_t counted = 0;  // prompts of this lane
      own.on_progress = [&](const Progress& now) {
        if (failed) throw Ended{};
        const std::lock_guard guard(progress_lock);
        progress.task = now.task;
        progress.acceptance_length = now.acceptance_length;
        progress.done += now.done - counted;
        counted = now.done;
        if (options.on_progress) options.on_progress(progress);
      };
      const std::unique_ptr<draft::Proposer> draft = make_draft();
      parts[lane] = measure(target, draft.get(), dealt(tasks, lane, parts.size()), words, own);
    } catch (...) {
      // The first one counts; Ended is thrown only behind it.
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t lane = 0; lane < parts.size(); ++lane) threads.emplace_back(work, lane);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);

  std::vector<TaskResult> results;
  for (size_t i = 0; i < tasks.size(); ++i) {
    std::vector<std::vector<std::vector<TurnResult>>> lanes_turns;
    for (std::vector<TaskResult>& part : parts) lanes_turns.push_back(by_prompt(std::move(part[i].turns)));
    TaskResult result{tasks[i].name, {}};
    for (size_t p = 0; p < tasks[i].prompts.size(); ++p) {
      for (TurnResult& turn : lanes_turns[p % parts.size()][p / parts.size()]) result.turns.push_back(std::move(turn));
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace pacer::eval
