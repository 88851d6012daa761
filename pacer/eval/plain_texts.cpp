#include "pacer/eval/plain_texts.h"

#include "pacer/decode/batch_generate.h"

namespace pacer::eval {
namespace {

constexpr int64_t kAtOnce = 16;  // a pass over 16 rows costs little more than one over one row; each has a cache

}  // namespace

PlainTexts::PlainTexts(const target::Target& target, const std::vector<Task>& tasks, const PlainTextOptions& options) {
  std::map<const data::Prompt*, std::vector<std::string>> answers;
  // Turn by turn: the second question of a conversation needs the answer to the first.
  for (size_t turn = 0;; ++turn) {
    if (options.max_turns > 0 && turn >= static_cast<size_t>(options.max_turns)) return;
    std::vector<const data::Prompt*> asked;
    std::vector<decode::BatchRequest> requests;
    for (const Task& task : tasks) {
      for (const data::Prompt& prompt : task.prompts) {
        if (prompt.turns.size() <= turn) continue;
        asked.push_back(&prompt);
        requests.push_back({.sample = options.sample(task, prompt, turn),
                            .prompt = options.encode(task, prompt, turn, answers[&prompt])});
      }
    }
    if (asked.empty()) return;
    decode::BatchOptions batch;
    batch.sampling = options.sampling;
    batch.sequences = kAtOnce;
    decode::generate_batch(target, requests, batch, [&](const decode::BatchResult& result) {
      const data::Prompt* prompt = asked[result.request];
      texts_[{prompt, turn}] = {result.tokens, result.finish};
      answers[prompt].push_back(options.decode(result.tokens));
      if (options.on_text) options.on_text();
      return true;
    });
  }
}

}  // namespace pacer::eval
