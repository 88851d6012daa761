#include "pacer/eval/measure.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>

#include "pacer/base/error.h"
#include "pacer/decode/prompt_lookup.h"
#include "pacer/device/device_memory.h"
#include "pacer/eval/plain_texts.h"

namespace pacer::eval {
namespace {

using decode::Decoded;
using decode::DecodeOptions;

// FNV-1a: the draws of a text are those of its name, wherever it stands.
uint64_t sample_of(const std::string& task, const std::string& id, size_t turn) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : task + '\n' + id + '\n' + std::to_string(turn)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  }
  return hash;
}

RunFigures figures_of(const Decoded& decoded) {
  return {static_cast<int64_t>(decoded.tokens.size()), decoded.prompt_known, decoded.finish, decoded.times,
          decoded.counts()};
}

void add_calibration(const Decoded& decoded, decode::Calibration& calibration) {
  for (const decode::RoundRecord& round : decoded.rounds) {
    if (round.confidence.empty()) continue;
    std::vector<double> predictions = decode::prefix_probabilities(round.confidence);
    predictions.resize(static_cast<size_t>(round.proposed));
    std::vector<uint8_t> labels;
    for (int64_t k = 0; k < round.proposed; ++k) labels.push_back(round.accepted > k ? 1 : 0);
    calibration.add(predictions, labels);
  }
}

class Measurement {
 public:
  Measurement(const target::Target& target, draft::Proposer* draft, const Words& words, const MeasureOptions& options)
      : target_(target),
        draft_(draft),
        lookup_(options.lookup_tokens),
        pace_(options.pace_options),
        words_(words),
        options_(options) {
    settings_.sampling = options.sampling;
    if (settings_.sampling.stop_ids.empty()) settings_.sampling.stop_ids = target.config().eos_ids;
    settings_.sampling.check();
    settings_.verifier = options.verifier;
  }

  // The first call of a process pays for packing weights and starting threads.
  void warm_up(const std::vector<Task>& tasks) {
    for (const Task& task : tasks) {
      if (task.prompts.empty()) continue;
      DecodeOptions settings = settings_;
      settings.sampling.max_new_tokens = std::min<int64_t>(settings.sampling.max_new_tokens, 8);
      const std::vector<int64_t> prompt = encode(task, task.prompts.front(), 0, {});
      decode::decode_plain(target_, prompt, settings);
      if (draft_) decode_with(*draft_, prompt, settings, nullptr);
      return;
    }
  }

  // `on_text` is called between texts.
  void write_plain_texts(const std::vector<Task>& tasks, const std::function<void()>& on_text) {
    PlainTextOptions texts;
    texts.sampling = settings_.sampling;
    texts.max_turns = options_.max_turns;
    texts.encode = [this](const Task& task, const data::Prompt& prompt, size_t turn,
                          const std::vector<std::string>& answers) { return encode(task, prompt, turn, answers); };
    texts.decode = words_.decode;
    texts.sample = [](const Task& task, const data::Prompt& prompt, size_t turn) {
      return sample_of(task.name, prompt.id, turn);
    };
    texts.on_text = on_text;
    plain_texts_.emplace(target_, tasks, texts);
  }

  // The turns of one prompt.
  void run(const Task& task, const data::Prompt& prompt, std::vector<TurnResult>& results) {
    std::vector<std::string> answers;
    size_t turns = prompt.turns.size();
    if (options_.max_turns > 0) turns = std::min(turns, static_cast<size_t>(options_.max_turns));
    for (size_t turn = 0; turn < turns; ++turn) {
      const std::vector<int64_t> ids = encode(task, prompt, turn, answers);
      DecodeOptions settings = settings_;
      settings.sample = sample_of(task.name, prompt.id, turn);
      TurnResult result;
      result.id = prompt.id;
      result.turn = static_cast<int64_t>(turn);
      result.prompt_tokens = static_cast<int64_t>(ids.size());
      std::optional<Decoded> plain, fast, looked_up, paced;
      const size_t first = turns_measured_++;
      for (size_t i = 0; i < 4; ++i) {
        switch ((first + i) % 4) {
          case 0:
            if (plain_texts_) {
              const PlainText& text = plain_texts_->of(prompt, turn);
              plain.emplace().tokens = text.tokens;
              plain->finish = text.finish;
              break;
            }
            plain = decode::decode_plain(target_, ids, with_memory(settings, Way::plain));
            break;
          case 1:
            if (draft_ && options_.pace != PaceUse::only) {
              fast = decode_with(*draft_, ids, with_memory(settings, Way::drafted), nullptr);
            }
            break;
          case 2:
            if (options_.lookup) {
              looked_up = decode::decode_speculative(target_, lookup_, ids, with_memory(settings, Way::looked_up));
            }
            break;
          default:
            if (options_.pace == PaceUse::off) break;
            draft::Proposer& proposer = draft_ ? *draft_ : lookup_;
            paced = decode_with(proposer, ids, with_memory(settings, Way::paced), &pace_);
        }
      }
      result.plain = figures_of(*plain);
      result.text = words_.decode(plain->tokens);
      if (fast) {
        result.speculative = compare(ids, *plain, *fast, settings);
        if (options_.confidence_threshold <= 0.0) add_calibration(*fast, result.calibration);
      }
      if (paced) result.paced = compare(ids, *plain, *paced, settings);
      if (looked_up) result.lookup = compare(ids, *plain, *looked_up, settings);
      answers.push_back(result.text);
      results.push_back(std::move(result));
    }
  }

 private:
  enum class Way : uint8_t { plain, drafted, looked_up, paced };

  // A memory for each way of decoding: none lives on what another has computed.
  DecodeOptions with_memory(DecodeOptions settings, Way way) {
    settings.memory = &memories_[static_cast<size_t>(way)];
    return settings;
  }

  std::vector<int64_t> encode(const Task& task, const data::Prompt& prompt, size_t turn,
                              const std::vector<std::string>& answers) const {
    data::Prompt asked = prompt;
    if (asked.system.empty()) asked.system = options_.system;
    std::vector<int64_t> ids = words_.encode(asked.messages(turn, answers), asked.tools);
    const int64_t positions = target_.config().max_position;
    if (positions > 0 && static_cast<int64_t>(ids.size()) >= positions) {
      throw Error(ErrorKind::data,
                  "task " + task.name + ", prompt " + prompt.id + ": " + std::to_string(ids.size()) +
                      " tokens, the target has positions for " + std::to_string(positions),
                  "remove the prompt, or measure fewer turns");
    }
    return ids;
  }

  Decoded decode_with(draft::Proposer& proposer, const std::vector<int64_t>& ids, DecodeOptions settings,
                      decode::Pace* pace) const {
    settings.confidence_threshold = options_.confidence_threshold;
    settings.most_drafts = options_.most_drafts;
    settings.pace = pace;
    return decode::decode_speculative(target_, proposer, ids, settings);
  }

  Comparison compare(const std::vector<int64_t>& ids, const Decoded& plain, const Decoded& other,
                     const DecodeOptions& settings) const {
    Comparison comparison{figures_of(other), {}, {}};
    if (!settings.sampling.greedy()) return comparison;
    comparison.identical = plain.tokens == other.tokens;
    if (*comparison.identical) return comparison;
    const auto [here, there] =
        std::mismatch(plain.tokens.begin(), plain.tokens.end(), other.tokens.begin(), other.tokens.end());
    Difference difference;
    difference.position = here - plain.tokens.begin();
    if (here != plain.tokens.end()) difference.plain = *here;
    if (there != other.tokens.end()) difference.speculative = *there;
    // Decoded plainly once more, outside of any measurement, to see the logits where the texts part.
    DecodeOptions replay = settings;
    replay.sampling.max_new_tokens = difference.position + 1;
    replay.sampling.stop_ids = {};
    at::Tensor logits;
    replay.on_logits = [&](const at::Tensor& row) { logits = row; };
    decode::decode_plain(target_, ids, replay);
    const at::Tensor row = device::to_host(logits).contiguous();
    const std::span<const float> values(row.const_data_ptr<float>(), static_cast<size_t>(row.numel()));
    double best = -std::numeric_limits<double>::infinity(), second = best;
    for (const float value : values) {
      second = std::max(second, std::min(best, static_cast<double>(value)));
      best = std::max(best, static_cast<double>(value));
    }
    difference.margin = best - second;
    const auto logit = [&](int64_t token) {
      return token < 0 ? best : static_cast<double>(values[static_cast<size_t>(token)]);
    };
    difference.disagreement = logit(difference.plain) - logit(difference.speculative);
    comparison.difference = difference;
    return comparison;
  }

  const target::Target& target_;
  draft::Proposer* draft_;
  decode::PromptLookup lookup_;
  decode::Pace pace_;
  const Words& words_;
  const MeasureOptions& options_;
  DecodeOptions settings_;
  std::array<decode::PromptMemory, 4> memories_;
  std::optional<PlainTexts> plain_texts_;  // with plain_in_batch
  size_t turns_measured_ = 0;
};

}  // namespace

std::vector<TaskResult> measure(const target::Target& target, draft::Proposer* draft, const std::vector<Task>& tasks,
                                const Words& words, const MeasureOptions& options) {
  if (options.max_turns < 0) {
    throw Error(ErrorKind::usage, "max_turns is " + std::to_string(options.max_turns) + ", allowed is 0 (all) or more");
  }
  if (options.most_drafts < 0) {
    throw Error(ErrorKind::usage, std::to_string(options.most_drafts) + " drafts a round; allowed is 0 (all) or more");
  }
  if (draft && options.most_drafts > draft->max_tokens()) {
    throw Error(ErrorKind::usage,
                std::to_string(options.most_drafts) + " drafts a round from " + draft->name() +
                    ", which was trained to propose " + std::to_string(draft->max_tokens()),
                "ask for at most that many: the draft has learnt no further slots");
  }
  Measurement measurement(target, draft, words, options);
  measurement.warm_up(tasks);
  Progress progress;
  for (const Task& task : tasks) progress.total += static_cast<int64_t>(task.prompts.size());
  if (options.plain_in_batch) {
    measurement.write_plain_texts(tasks, [&] {
      if (options.on_progress) options.on_progress(progress);
    });
  }
  std::vector<TaskResult> results;
  for (const Task& task : tasks) {
    TaskResult result{task.name, {}};
    decode::AcceptanceCounts counts;
    for (const data::Prompt& prompt : task.prompts) {
      const size_t before = result.turns.size();
      measurement.run(task, prompt, result.turns);
      for (size_t i = before; i < result.turns.size(); ++i) {
        const TurnResult& turn = result.turns[i];
        if (const auto& drafted = turn.speculative ? turn.speculative : turn.paced) counts.add(drafted->figures.counts);
      }
      if (!options.on_progress) continue;
      progress.task = task.name;
      ++progress.done;
      progress.acceptance_length = counts.acceptance_length().value_or(0.0);
      options.on_progress(progress);
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace pacer::eval
