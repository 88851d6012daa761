#include "pacer/decode/loop.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>

#include "pacer/base/error.h"
#include "pacer/decode/confidence.h"
#include "pacer/decode/prompt_lookup.h"
#include "pacer/target/exact_rows.h"

namespace pacer::decode {
namespace {

bool is_stop(int64_t token, const SamplingOptions& sampling) {
  return std::find(sampling.stop_ids.begin(), sampling.stop_ids.end(), token) != sampling.stop_ids.end();
}

// What both ways of decoding share: the cache, the text so far and when it ends.
struct Text {
  Text(const target::Target& target_, const std::vector<int64_t>& prompt, DecodeOptions options_)
      : target(target_), options(std::move(options_)), own_uniforms(options.sampling.seed, options.sample) {
    options.sampling.check();
    if (prompt.empty()) throw Error(ErrorKind::data, "the prompt holds no token");
    position = static_cast<int64_t>(prompt.size());
    const int64_t room = target.config().max_position - position;
    if (target.config().max_position > 0 && room < 1) {
      throw Error(ErrorKind::data,
                  "the prompt holds " + std::to_string(position) + " tokens, the target has positions for " +
                      std::to_string(target.config().max_position),
                  "shorten the prompt; one position must be left for the answer");
    }
    limit = options.sampling.max_new_tokens;
    if (target.config().max_position > 0 && room < limit) limit = room, limited_by = Finish::context;
  }

  // The last rows of the prompt and, with taps, the tapped rows of all of it.
  target::TargetOutput prefill(const std::vector<int64_t>& prompt, const target::Taps& taps) {
    PromptMemory::Beginning known;
    if (options.memory) known = options.memory->take(prompt, taps);
    made.prompt_known = known.length;
    cache = known.cache ? std::move(known.cache) : target.new_cache(position + limit);
    target::TargetOutput output = forward({prompt.begin() + known.length, prompt.end()}, taps);
    if (known.tapped.defined()) output.tapped = at::cat({known.tapped, output.tapped});
    if (options.memory) {
      ids = prompt;
      if (!taps.empty()) tapped.push_back(output.tapped);
    }
    return output;
  }

  // The text has ended: its rows may be the beginning of the next one's.
  void remember(const target::Taps& taps) {
    if (!options.memory) return;
    ids.insert(ids.end(), made.tokens.begin(), made.tokens.end());
    options.memory->keep(std::move(cache), std::move(ids), taps, std::move(tapped));
  }

  UniformSource& uniforms() { return options.uniforms ? *options.uniforms : own_uniforms; }

  target::TargetOutput forward(const std::vector<int64_t>& ids, const target::Taps& taps) {
    return target::forward_exact(target, {ids}, taps, {cache.get()});
  }

  // Logits of tokens, without the rows that only pad the vocabulary.
  at::Tensor tokens_of(const at::Tensor& logits) const {
    return without_padding(logits, target.config().vocab_size, options.sampling);
  }

  // The token behind the last row: greedy, or drawn with the anchor's own uniform number.
  int64_t choose(const at::Tensor& last_row, int64_t anchor) {
    const at::Tensor logits = tokens_of(target.logits(last_row));
    watch.lap(made.times.verify);
    if (options.on_logits) options.on_logits(logits[0]);
    int64_t token = 0;
    if (options.sampling.greedy()) {
      token = greedy_tokens(logits)[0];
    } else {
      const at::Tensor law = distribution(logits[0], options.sampling);
      const std::span<const float> weights(law.const_data_ptr<float>(), static_cast<size_t>(law.numel()));
      token = draw_token(weights, uniforms().uniform(anchor, 0, Draw::token));
    }
    watch.lap(made.times.sample);
    return token;
  }

  // A token is certain; it becomes the new anchor unless the text ends with it.
  void commit(int64_t token, Origin origin) {
    made.tokens.push_back(token);
    made.origins.push_back(origin);
    if (is_stop(token, options.sampling)) {
      made.finish = Finish::stop;
      done = true;
    } else if (static_cast<int64_t>(made.tokens.size()) >= limit) {
      made.finish = limited_by;
      done = true;
    }
    if (options.on_token) options.on_token(token, origin);
  }

  const target::Target& target;
  DecodeOptions options;
  CounterUniforms own_uniforms;
  PhaseClock watch;
  std::unique_ptr<target::KvCache> cache;
  std::vector<int64_t> ids;        // of the prompt, for the memory
  std::vector<at::Tensor> tapped;  // of the rows in the cache, for the memory
  int64_t position = 0;            // of the anchor
  int64_t limit = 0;
  Finish limited_by = Finish::length;
  bool done = false;
  Decoded made;
};

}  // namespace

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::target:
      return "target";
    case Origin::drafted:
      return "drafted";
    case Origin::corrected:
      return "corrected";
    case Origin::bonus:
      return "bonus";
  }
  throw Error(ErrorKind::bug, "an origin without a name");
}

std::string_view finish_name(Finish finish) {
  switch (finish) {
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::context:
      return "context";
  }
  throw Error(ErrorKind::bug, "a finish without a name");
}

AcceptanceCounts Decoded::counts() const {
  AcceptanceCounts counts;
  counts.samples = 1;
  for (const RoundRecord& round : rounds) counts.add(round);
  return counts;
}

Decoded decode_plain(const target::Target& target, const std::vector<int64_t>& prompt, const DecodeOptions& options) {
  const c10::InferenceMode inference;
  Text text(target, prompt, options);
  text.watch.lap(text.made.times.other);
  at::Tensor last = text.prefill(prompt, {}).last.slice(0, -1);
  text.watch.lap(text.made.times.prefill);
  text.commit(text.choose(last, text.position - 1), Origin::target);
  while (!text.done) {
    text.watch.lap(text.made.times.other);
    last = text.forward({text.made.tokens.back()}, {}).last;
    text.commit(text.choose(last, text.position), Origin::target);
    ++text.position;
  }
  text.remember({});
  text.watch.lap(text.made.times.other);
  return std::move(text.made);
}

struct SpeculativeDecoder::State {
  State(const target::Target& target, draft::Proposer& proposer_, const std::vector<int64_t>& prompt,
        DecodeOptions options)
      : text(target, prompt, std::move(options)),
        proposer(proposer_),
        taps(proposer_.taps()),
        pace(text.options.pace),
        lookup(dynamic_cast<PromptLookup*>(&proposer_)),
        drafts(lookup == nullptr) {
    if (pace) {
      pace->begin_text();
      if (drafts && pace->options().lookup) lookup = &own_lookup.emplace(pace->options().lookup_tokens);
    }
    if (text.options.confidence_threshold < 0.0 || text.options.confidence_threshold > 1.0) {
      throw Error(ErrorKind::usage, "confidence threshold is " + std::to_string(text.options.confidence_threshold) +
                                        ", allowed is 0 to 1");
    }
    if (text.options.most_drafts < 0) {
      throw Error(ErrorKind::usage, std::to_string(text.options.most_drafts) +
                                        " drafts a round; allowed is 0 (as many " + "as there are) or more");
    }
    PhaseTimes& times = text.made.times;
    text.watch.lap(times.other);
    const target::TargetOutput output = text.prefill(prompt, taps);
    text.watch.lap(times.prefill);
    text.commit(text.choose(output.last.slice(0, -1), text.position - 1), Origin::target);
    if (text.done) text.remember(taps);
    text.watch.lap(times.other);
    if (!text.done) proposer.start(prompt, output.tapped);
    if (!text.done && own_lookup) own_lookup->start(prompt, {});
    text.watch.lap(times.draft);
  }

  // Drafts behind the anchor, from whoever the pace chooses.
  draft::Proposal propose(RoundRecord& record, Played& played) {
    const int64_t produced = static_cast<int64_t>(text.made.tokens.size());
    int64_t room = text.limit - produced - 1;  // the token behind the proposal needs room too
    const int64_t remaining = room + 1;
    if (text.options.most_drafts > 0) room = std::min(room, text.options.most_drafts);
    if (!pace) return ask(proposer, room);
    Opening opening;
    opening.room = room, opening.remaining = remaining;
    if (drafts) opening.draft = proposer.max_tokens(), opening.behind = proposer.behind();
    draft::Proposal found;
    if (lookup) {
      found = ask(*lookup, room);
      opening.looked_up = found.tokens, opening.match = lookup->match();
    }
    const Move move = pace->plan(opening);
    record.source = played.source = move.source;
    record.trial = move.trial;
    if (move.source == Source::none) return {};
    if (move.source == Source::lookup) {
      shorten(found, move.tokens);
      return found;
    }
    const double start = pace->now();
    played.caught_up = proposer.behind();
    proposer.catch_up();
    const double caught_up = pace->now();
    found = ask(proposer, std::min(room, move.tokens));
    played.catch_up_s = caught_up - start, played.propose_s = pace->now() - caught_up;
    played.drafted = static_cast<int64_t>(found.tokens.size());
    return found;
  }

  draft::Proposal ask(draft::Proposer& from, int64_t most) {
    draft::Proposal proposal;
    const int64_t room = std::min(from.max_tokens(), most);
    if (room < 1) return proposal;
    const bool greedy = text.options.sampling.greedy();
    int64_t slot = 0;
    const draft::DrawToken draw = [&](const at::Tensor& all, at::Tensor* probabilities) -> int64_t {
      const at::Tensor logits = text.tokens_of(all);
      if (greedy) {
        if (probabilities) *probabilities = distribution(logits, text.options.sampling);
        return greedy_tokens(logits)[0];
      }
      const at::Tensor law = distribution(logits, text.options.sampling);
      if (probabilities) *probabilities = law;
      const std::span<const float> weights(law.const_data_ptr<float>(), static_cast<size_t>(law.numel()));
      return draw_token(weights, text.uniforms().uniform(text.position, slot++, Draw::draft));
    };
    proposal = from.propose(text.made.tokens.back(), room, greedy, draw);
    check(from, proposal, room);
    if (!proposal.probabilities.defined()) {
      // A prompt may hold ids that are no tokens, and its reader would propose them again.
      const int64_t vocabulary = text.options.sampling.vocabulary;
      const auto padding = [&](int64_t token) { return vocabulary > 0 && token >= vocabulary; };
      const auto first = std::find_if(proposal.tokens.begin(), proposal.tokens.end(), padding);
      shorten(proposal, first - proposal.tokens.begin());
    } else {
      proposal.probabilities = text.tokens_of(proposal.probabilities).contiguous();
    }
    return proposal;
  }

  void check(const draft::Proposer& from, const draft::Proposal& proposal, int64_t room) const {
    const auto n = static_cast<int64_t>(proposal.tokens.size());
    const bool confident = proposal.confidence.empty() || static_cast<int64_t>(proposal.confidence.size()) == n;
    const bool shares = !proposal.probabilities.defined() || proposal.probabilities.size(0) == n;
    if (n > room || !confident || !shares) {
      throw Error(ErrorKind::bug, from.name() + " proposed " + std::to_string(n) + " tokens where " +
                                      std::to_string(room) + " were asked for, with " +
                                      std::to_string(proposal.confidence.size()) + " confidences");
    }
  }

  void cut(draft::Proposal& proposal, Source source) {
    if (proposal.confidence.empty()) {
      if (text.options.confidence_threshold > 0.0 && source == Source::draft && !proposal.tokens.empty()) {
        throw Error(ErrorKind::usage,
                    "a confidence threshold needs a confidence head, " + proposer.name() + " has none",
                    "leave the threshold at 0, or train a draft with a confidence head");
      }
      return;
    }
    int64_t kept = confident_prefix(proposal.confidence, text.options.confidence_threshold);
    if (pace) kept = std::min(kept, pace->keep(proposal.confidence));
    shorten(proposal, kept);
  }

  static void shorten(draft::Proposal& proposal, int64_t kept) {
    if (kept >= static_cast<int64_t>(proposal.tokens.size())) return;
    proposal.tokens.resize(static_cast<size_t>(kept));
    if (!proposal.confidence.empty()) proposal.confidence.resize(static_cast<size_t>(kept));
    if (proposal.probabilities.defined()) proposal.probabilities = proposal.probabilities.slice(0, 0, kept);
  }

  void round() {
    PhaseTimes& times = text.made.times;
    const SamplingOptions& sampling = text.options.sampling;
    text.watch.lap(times.other);
    RoundRecord record;
    Played played;
    draft::Proposal proposal = propose(record, played);
    cut(proposal, record.source);
    text.watch.lap(times.draft);

    const auto n = static_cast<int64_t>(proposal.tokens.size());
    const double before = pace ? pace->now() : 0.0;
    record.start = text.position;
    record.verified = {text.made.tokens.back()};
    record.verified.insert(record.verified.end(), proposal.tokens.begin(), proposal.tokens.end());
    const target::TargetOutput output = text.forward(record.verified, taps);
    const at::Tensor logits = text.tokens_of(text.target.logits(output.last));
    text.watch.lap(times.verify);

    TargetRows rows;
    VerifyDraws draws;
    if (sampling.greedy()) {
      rows.greedy = greedy_tokens(logits);
    } else {
      rows.probabilities = distribution(logits, sampling);
      // All numbers of a round are taken, needed or not: which ones are used must not move the others.
      for (int64_t i = 0; i < n; ++i) draws.accept.push_back(text.uniforms().uniform(text.position, i, Draw::accept));
      draws.token = text.uniforms().uniform(text.position, 0, Draw::token);
    }
    const Verification verdict = text.options.verifier(rows, proposal, draws, sampling.stop_ids);
    text.watch.lap(times.sample);
    if (pace) played.target_s = pace->now() - before;

    record.proposed = verdict.judged;
    record.accepted = verdict.accepted;
    record.accepted_raw = verdict.accepted_raw;
    record.next_token = verdict.next_token;
    record.stopped = verdict.stopped;
    record.confidence = proposal.confidence;
    for (int64_t i = 0; i < verdict.accepted; ++i)
      text.commit(proposal.tokens[static_cast<size_t>(i)], Origin::drafted);
    if (!verdict.stopped) text.commit(verdict.next_token, verdict.accepted < n ? Origin::corrected : Origin::bonus);
    if (pace) {
      played.verified = n, played.accepted = verdict.accepted_raw;
      played.confidence = proposal.confidence;
      played.committed.assign(proposal.tokens.begin(), proposal.tokens.begin() + verdict.accepted);
      if (!verdict.stopped) played.committed.push_back(verdict.next_token);
      pace->played(played);
    }
    text.made.rounds.push_back(std::move(record));

    const int64_t seen = verdict.accepted + 1;  // anchor and accepted drafts
    text.cache->crop(text.position + seen);
    if (text.options.memory && !taps.empty()) text.tapped.push_back(output.tapped.slice(0, 0, seen));
    if (text.done) {
      text.remember(taps);
    } else {
      const std::vector<int64_t>& verified = text.made.rounds.back().verified;
      const std::vector<int64_t> committed(verified.begin(), verified.begin() + static_cast<std::ptrdiff_t>(seen));
      text.watch.lap(times.other);
      proposer.advance(committed, taps.empty() ? at::Tensor() : output.tapped.slice(0, 0, seen));
      if (own_lookup) own_lookup->advance(committed, {});
      text.watch.lap(times.draft);
      text.position += seen;
    }
    text.watch.lap(times.other);
  }

  Text text;
  draft::Proposer& proposer;
  target::Taps taps;
  // Only with a pace, which tells prompt lookup from a draft: the one is free, the other is not.
  Pace* pace;
  PromptLookup* lookup;  // the proposer itself, or own_lookup, or null
  bool drafts;           // the proposer is a draft
  std::optional<PromptLookup> own_lookup;
};

SpeculativeDecoder::SpeculativeDecoder(const target::Target& target, draft::Proposer& proposer,
                                       const std::vector<int64_t>& prompt, DecodeOptions options) {
  const c10::InferenceMode inference;
  state_ = std::make_unique<State>(target, proposer, prompt, std::move(options));
}

SpeculativeDecoder::~SpeculativeDecoder() = default;

bool SpeculativeDecoder::done() const { return state_->text.done; }

const Decoded& SpeculativeDecoder::result() const { return state_->text.made; }

void SpeculativeDecoder::round() {
  if (done()) throw Error(ErrorKind::bug, "a round after the end of the text");
  const c10::InferenceMode inference;
  state_->round();
}

Decoded decode_speculative(const target::Target& target, draft::Proposer& proposer, const std::vector<int64_t>& prompt,
                           const DecodeOptions& options) {
  SpeculativeDecoder decoder(target, proposer, prompt, options);
  while (!decoder.done()) decoder.round();
  return decoder.result();
}

}  // namespace pacer::decode
