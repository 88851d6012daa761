// Speculative decoding round by round: what a round costs and where it goes.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/models.h"
#include "pacer/bench/row_costs.h"
#include "pacer/bench/timed_parts.h"
#include "pacer/decode/loop.h"
#include "pacer/draft/block_proposer.h"

namespace pacer::bench {
namespace {

draft::DraftFolder random_draft(const Work& work, const target::ModelConfig& target, at::ScalarType dtype,
                                Values& values) {
  draft::DraftFolder draft;
  draft.config =
      draft::DraftConfig::for_target(target, target::default_taps(target.layers, work.integer("tap_layers")));
  draft.config.layers = draft.config.layer.layers = work.integer("draft_layers");
  draft.config.block_size = work.integer("block_size");
  draft.config.mask_token_id = target.vocab_size - 1;
  draft.config.markov = draft::MarkovKind::vanilla;
  draft.config.markov_rank = work.integer("markov_rank");
  draft.config.confidence_head = draft.config.confidence_with_markov = true;
  for (const auto& [name, shape] : draft::parameter_shapes(draft.config)) {
    draft.weights[name] = name.ends_with("norm.weight") ? at::ones(shape, dtype)
                          : name.ends_with(".bias")     ? at::zeros(shape, dtype)
                                                        : values.normal(shape, 0.02, dtype);
  }
  return draft;
}

OrderedJson milliseconds(const decode::Seconds& sum, double rounds) {
  return {{"cpu_ms", sum.cpu * 1e3 / rounds}, {"wall_ms", sum.wall * 1e3 / rounds}};
}

}  // namespace

Result specdec(const Work& work, const Settings& settings, device::Runtime& runtime) {
  const at::ScalarType dtype = settings.scalar_type();
  if (work.integer("batch") != 1) throw Error(ErrorKind::format, "specdec: batch must be 1");
  const int64_t prompt_tokens = work.integer("prompt"), new_tokens = work.integer("new_tokens");
  Values values(work.seed());
  const std::shared_ptr<const target::Target> target =
      given_or_random(settings, work.model("target", work.text("target_arch")), values, runtime);
  const std::vector<int64_t> prompt = values.tokens(prompt_tokens, target->config().vocab_size);
  const draft::DraftFolder draft = random_draft(work, target->config(), dtype, values);

  Parts parts;
  const std::shared_ptr<const target::Target> watched = timed(target, parts);
  draft::ProposerOptions measured;
  measured.confidence_cpu_s = &parts.confidence_cpu_s;
  TimedProposer proposer(draft::make_block_proposer(draft, watched, measured), parts);
  decode::DecodeOptions options;
  options.sampling.temperature = work.number("temperature");
  options.sampling.seed = work.seed();
  // Room behind the last token, so that every round proposes a whole block.
  options.sampling.max_new_tokens = new_tokens + draft.config.block_size + 1;

  struct Text {
    Parts parts;
    decode::PhaseTimes times;
    decode::Seconds rounds_time;
    int64_t rounds = 0, tokens = 0, proposed = 0, accepted = 0;
  };
  std::vector<Text> texts;
  Result result;
  result.timings = time_work(work, settings, [&] {
    decode::SpeculativeDecoder decoder(*watched, proposer, prompt, options);
    parts = {};
    const decode::PhaseTimes before = decoder.result().times;
    decode::PhaseClock clock;
    Text text;
    while (static_cast<int64_t>(decoder.result().tokens.size()) < new_tokens) decoder.round();
    clock.lap(text.rounds_time);
    const decode::Decoded& made = decoder.result();
    text.parts = parts;
    text.times = made.times;
    text.times.sample.cpu -= before.sample.cpu, text.times.sample.wall -= before.sample.wall;
    text.rounds = static_cast<int64_t>(made.rounds.size());
    text.tokens = static_cast<int64_t>(made.tokens.size());
    for (const decode::RoundRecord& round : made.rounds) {
      text.proposed += static_cast<int64_t>(round.verified.size()) - 1;
      text.accepted += round.accepted;
    }
    texts.push_back(text);
  });
  texts.erase(texts.begin(), texts.end() - static_cast<std::ptrdiff_t>(result.timings.cpu.size()));

  Text sum;  // over the timed texts: rounds are many, so means are steady
  std::vector<double> after_prefill;
  for (const Text& text : texts) {
    for (const auto part : {&Parts::target_forward, &Parts::target_head, &Parts::draft_forward, &Parts::draft_head,
                            &Parts::markov_confidence, &Parts::draws}) {
      sum.parts.*part += text.parts.*part;
    }
    sum.parts.confidence_cpu_s += text.parts.confidence_cpu_s;
    sum.rounds_time += text.rounds_time;
    sum.times.sample += text.times.sample;
    sum.rounds += text.rounds, sum.tokens += text.tokens, sum.proposed += text.proposed;
    sum.accepted += text.accepted;
    after_prefill.push_back(text.rounds_time.cpu / static_cast<double>(text.tokens - 1));
  }
  const auto rounds = static_cast<double>(sum.rounds);
  decode::Seconds rest = sum.rounds_time;
  for (const decode::Seconds& part :
       {sum.parts.target_forward, sum.parts.target_head, sum.parts.draft_forward, sum.parts.draft_head,
        sum.parts.markov_confidence, sum.parts.draws, sum.times.sample}) {
    rest.cpu -= part.cpu, rest.wall -= part.wall;
  }

  result.tokens_per_cpu_s = static_cast<double>(texts.back().tokens) / median(result.timings.cpu);
  result.decode_only_tokens_per_cpu_s = 1.0 / median(after_prefill);
  const auto width = static_cast<double>(c10::elementSize(dtype));
  const bool greedy = work.number("temperature") == 0.0;
  double draft_elements = 0, markov_elements = 0;
  for (const auto& [name, weight] : draft.weights) {
    // Of the Markov tables a draft token reads one row of W1 and, for a distribution, all of W2; for a greedy choice
    // only the rows that could win, of which no number is known before.
    if (name == "markov_head.markov_w2.weight" && !greedy) markov_elements = static_cast<double>(weight.numel());
    if (weight.dim() == 2 && !name.starts_with("markov_head.")) draft_elements += static_cast<double>(weight.numel());
  }
  const target::ModelConfig& sizes = target->config();
  const double head_elements = static_cast<double>(sizes.vocab_size * sizes.hidden_size);
  const double round_bytes = width * (static_cast<double>(matrix_elements(sizes)) + draft_elements + head_elements +
                                      markov_elements * static_cast<double>(draft.config.drafts_per_block()));
  const double rounds_per_text = rounds / static_cast<double>(texts.size());
  const double rows_per_round = static_cast<double>(draft.config.drafts_per_block() + 1);
  result.flops = 2.0 * (static_cast<double>(matrix_elements(sizes)) *
                            (static_cast<double>(prompt_tokens) + rounds_per_text * rows_per_round) +
                        rounds_per_text * static_cast<double>(draft.config.block_size) *
                            (draft_elements + head_elements + markov_elements));
  result.bytes = round_bytes * rounds_per_text;
  result.work = {{"prompt", prompt_tokens},
                 {"new_tokens", new_tokens},
                 {"block_size", draft.config.block_size},
                 {"rounds", rounds_per_text},
                 {"proposed_per_round", static_cast<double>(sum.proposed) / rounds},
                 {"accepted_per_round", static_cast<double>(sum.accepted) / rounds},
                 {"round_bytes", round_bytes},
                 {"round", milliseconds(sum.rounds_time, rounds)},
                 {"target_forward", milliseconds(sum.parts.target_forward, rounds)},
                 {"target_head", milliseconds(sum.parts.target_head, rounds)},
                 {"draft_forward", milliseconds(sum.parts.draft_forward, rounds)},
                 {"draft_head", milliseconds(sum.parts.draft_head, rounds)},
                 {"markov_and_confidence", milliseconds(sum.parts.markov_confidence, rounds)},
                 {"markov_cpu_ms", (sum.parts.markov_confidence.cpu - sum.parts.confidence_cpu_s) * 1e3 / rounds},
                 {"confidence_cpu_ms", sum.parts.confidence_cpu_s * 1e3 / rounds},
                 {"draft_draws", milliseconds(sum.parts.draws, rounds)},
                 {"target_draws", milliseconds(sum.times.sample, rounds)},
                 {"rest", milliseconds(rest, rounds)}};
  row_costs(*target, prompt_tokens, draft.config.drafts_per_block() + 1).add_to(result.work);
  return result;
}

}  // namespace pacer::bench
