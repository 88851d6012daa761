#include "pacer/decode/pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pacer/base/error.h"

namespace pacer::decode {
namespace {

constexpr int64_t kFirstSteps = 2;        // plain steps of a session before anything can be compared with them
constexpr double kDebt = 0.5;             // of the allowance, below which no promise is believed
constexpr double kAssumedProposal = 0.2;  // plain steps, until a proposal was measured
constexpr double kSmoothing = 0.25;       // of the newest catching up
constexpr double kConfidenceKeeps = 0.98, kConfidenceWeight = 4.0;
// A plain step that was measured so many passes ago is measured anew, later where the promise is large.
constexpr int64_t kStale = 64, kStaleFarAhead = 256;
constexpr double kFarAhead = 1.3;
constexpr double kDraftPrior = 0.6;
// By length of the match. Low: prompt lookup is learned about without being asked, so nothing is lost by waiting.
constexpr double kLookupPriors[] = {0.0, 0.1, 0.2, 0.35};

double sigmoid(float logit) { return 1.0 / (1.0 + std::exp(-static_cast<double>(logit))); }

void check(const PaceOptions& options) {
  const auto refuse = [](const char* name, double value, const char* allowed) {
    throw Error(ErrorKind::usage,
                std::string("pace: ") + name + " is " + std::to_string(value) + ", allowed is " + allowed);
  };
  if (!(options.trying >= 0.0 && options.trying <= 1.0)) refuse("trying", options.trying, "0 to 1");
  if (!(options.allowance >= 0.0)) refuse("allowance", options.allowance, "0 or more");
  if (!(options.margin >= 0.0)) refuse("margin", options.margin, "0 or more");
  if (!options.clock) throw Error(ErrorKind::bug, "pace: no clock");
}

}  // namespace

Pace::Pace(PaceOptions options) : options_(std::move(options)), draft_(kDraftPrior), credit_(options_.allowance) {
  check(options_);
  pass_.add(1, 1.0);
  for (const double prior : kLookupPriors) lookup_.emplace_back(prior);
}

void Pace::begin_text() {
  draft_.begin_text();
  for (Acceptance& lookup : lookup_) lookup.begin_text();
  guesses_.clear();
  failures_ = 0;
  last_rows_ = 0;
}

// More rows never cost less than one, whatever two disturbed measurements say.
double Pace::pass_cost(int64_t rows) const { return std::max(1.0, pass_.cost(rows)); }

double Pace::proposal_cost(int64_t drafts) const {
  return proposal_.empty() ? kAssumedProposal : proposal_.cost(drafts);
}

Pace::Choice Pace::best_lookup(const Opening& opening) const {
  Choice best;
  const auto longest = std::min(opening.room, static_cast<int64_t>(opening.looked_up.size()));
  const size_t match = std::min(static_cast<size_t>(opening.match), lookup_.size() - 1);
  for (int64_t n = 1; n <= longest; ++n) {
    const Choice choice{n, lookup_[match].tokens(n), pass_cost(n + 1)};
    if (choice.rate() > best.rate()) best = choice;
  }
  return best;
}

Pace::Choice Pace::best_draft(const Opening& opening) const {
  Choice best;
  for (int64_t n = 1; n <= std::min(opening.room, opening.draft); ++n) {
    Choice choice{n, draft_.tokens(n), pass_cost(n + 1) + proposal_cost(n)};
    // What one round commits must be caught up with every round; what an idle draft has missed, only once.
    const double usual = std::min(static_cast<double>(opening.behind), choice.expected);
    const double rounds =
        std::max(1.0, static_cast<double>(std::min<int64_t>(opening.remaining, 32)) / choice.expected);
    choice.cost += catch_up_per_token_ * (usual + (static_cast<double>(opening.behind) - usual) / rounds);
    if (best.tokens == 0 || choice.rate() > best.rate()) best = choice;
  }
  return best;
}

Move Pace::plan(const Opening& opening) {
  cut_at_ = -1;
  trial_ = false;
  if (!opening.looked_up.empty()) {
    guesses_.push_back({opening.looked_up, std::min(static_cast<size_t>(opening.match), lookup_.size() - 1)});
  }
  if (opening.room < 1 || plain_steps_ < kFirstSteps) return {};
  Move move;
  double pays = 1.0 + options_.margin;  // tokens per plain step that a choice has to beat
  double alternative = 1.0;
  if (const Choice lookup = best_lookup(opening); lookup.rate() > pays) {
    move = {Source::lookup, lookup.tokens, false};
    pays = alternative = lookup.rate();
  }
  if (opening.draft > 0) {
    const Choice draft = best_draft(opening);
    if (draft.rate() > pays && !barred_) {
      move = {Source::draft, draft.tokens, false};
      alternative = draft.rate();
    } else {
      const double cost = pass_cost(draft.tokens + 1) + proposal_cost(draft.tokens) +
                          catch_up_per_token_ * static_cast<double>(opening.behind);
      const double loss = std::max(0.0, cost - 1.0 / alternative);  // when no draft is accepted
      const double needed = std::min(loss * std::exp2(static_cast<double>(failures_)), options_.allowance);
      if (credit_ > 0.0 && credit_ >= needed) move = {Source::draft, draft.tokens, true};
    }
    // With a confidence head the proposal is cut where it is made, not where proposals mostly fail.
    if (move.source == Source::draft && confident_) move.tokens = std::min(opening.room, opening.draft);
  }
  if (move.source != Source::none) {
    if (since_plain_ > (alternative > kFarAhead ? kStaleFarAhead : kStale)) return {};
  }
  rate_ = alternative;
  trial_ = move.trial;
  return move;
}

double Pace::accepts(float logit) const {
  return std::min(1.0, sigmoid(logit) * (passed_ + kConfidenceWeight) / (predicted_ + kConfidenceWeight));
}

int64_t Pace::keep(std::span<const float> confidence) {
  const auto n = static_cast<int64_t>(confidence.size());
  double alive = 1.0;  // probability that the slots before k are accepted
  for (int64_t k = 0; k < n; ++k) {
    const double own = accepts(confidence[static_cast<size_t>(k)]), here = pass_cost(k + 1);
    double gain = 0.0, branch = alive * own;
    bool worth = false;
    for (int64_t m = k + 1; m <= n && !worth; ++m) {
      gain += branch;
      worth = gain > rate_ * (pass_cost(m + 1) - here);
      branch *= draft_.rate(m);
    }
    // A trial verifies a slot in any case: a head that is wrongly sure of failing would never be proved wrong.
    if (!worth && !(trial_ && k == 0)) {
      cut_at_ = k;
      cut_probability_ = own;
      return k;
    }
    alive *= own;
  }
  return n;
}

void Pace::learn_from_draft(const Played& round) {
  for (int64_t k = 0; k < std::min(round.verified, round.accepted + 1); ++k) {
    const double success = k < round.accepted ? 1.0 : 0.0;
    draft_.add(k, success);
    if (round.confidence.empty()) continue;
    predicted_ = kConfidenceKeeps * predicted_ + sigmoid(round.confidence[static_cast<size_t>(k)]);
    passed_ = kConfidenceKeeps * passed_ + success;
  }
  // A slot that was refused was not tried, but its confidence says what it would have done. Without this the slots that
  // are tried would be the good ones only, and drafting would look better than it is.
  if (cut_at_ == round.verified && round.accepted == round.verified) draft_.add(cut_at_, cut_probability_);
  confident_ = confident_ || !round.confidence.empty() || cut_at_ >= 0;
}

void Pace::learn_from_lookup(const std::vector<int64_t>& committed) {
  for (const int64_t token : committed) {
    for (Guess& guess : guesses_) {
      const bool right = guess.tokens[static_cast<size_t>(guess.next)] == token;
      lookup_[guess.match].add(guess.next++, right ? 1.0 : 0.0);
      if (!right) guess.next = static_cast<int64_t>(guess.tokens.size());
    }
    std::erase_if(guesses_, [](const Guess& guess) { return guess.next == static_cast<int64_t>(guess.tokens.size()); });
  }
}

void Pace::learn_costs(const Played& round) {
  const int64_t rows = round.verified + 1;
  if (!(round.target_s > 0.0)) {  // finer than the clock
    last_rows_ = 0;
    return;
  }
  if (rows > 1 && last_rows_ == 1) pass_.add(rows, round.target_s / last_s_);
  if (rows == 1 && last_rows_ > 1) pass_.add(last_rows_, last_s_ / round.target_s);
  if (rows == 1) {
    ++plain_steps_;
    since_plain_ = 0;
  } else {
    ++since_plain_;
  }
  last_rows_ = rows, last_s_ = round.target_s;
  step_s_ = round.target_s / pass_cost(rows);
  if (round.source != Source::draft) return;
  proposal_.add(std::max<int64_t>(1, round.drafted), round.propose_s / step_s_);
  if (round.caught_up > 0) {
    const double each = round.catch_up_s / step_s_ / static_cast<double>(round.caught_up);
    catch_up_per_token_ += (catch_up_per_token_ == 0.0 ? 1.0 : kSmoothing) * (each - catch_up_per_token_);
  }
}

void Pace::played(const Played& round) {
  learn_costs(round);
  if (round.source == Source::draft) learn_from_draft(round);
  learn_from_lookup(round.committed);
  draft_.next_round();
  for (Acceptance& lookup : lookup_) lookup.next_round();

  double spent = pass_cost(round.verified + 1);
  if (step_s_ > 0.0) spent += (round.catch_up_s + round.propose_s) / step_s_;
  credit_ += options_.trying * spent;
  if (round.source == Source::draft) {
    const double gain = static_cast<double>(round.committed.size()) - spent;
    credit_ += gain;
    failures_ = gain < 0.0 ? std::min<int64_t>(failures_ + 1, 16) : 0;
  }
  credit_ = std::clamp(credit_, -options_.allowance, options_.allowance);
  // Whatever the estimates promise: what has lost so much is not believed until the loss is made good.
  barred_ = credit_ < -kDebt * options_.allowance || (barred_ && credit_ < 0.0);
}

}  // namespace pacer::decode
