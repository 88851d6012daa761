#include "pacer/decode/pace.h"

#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/decode/loop.h"
#include "pacer/decode/prompt_lookup.h"
#include "tests/decode/costed.h"
#include "tests/decode/oracle.h"

namespace pacer::decode {
namespace {

using test::CostedProposer;
using test::CostedTarget;
using test::Prices;

constexpr int64_t kVocab = 24;

TEST(RowCosts, OneDisturbedPassMovesNothing) {
  RowCosts costs;
  EXPECT_THROW(costs.cost(1), Error);
  for (int i = 0; i < 4; ++i) costs.add(1, 1.0);
  costs.add(1, 50.0);
  EXPECT_DOUBLE_EQ(costs.cost(1), 1.0);
  EXPECT_EQ(costs.measurements(1), 5);
  EXPECT_EQ(costs.measurements(2), 0);
}

TEST(RowCosts, FollowsWhatChangedForGood) {
  RowCosts costs;
  for (int i = 0; i < 20; ++i) costs.add(1, 1.0);
  for (int i = 0; i < 5; ++i) costs.add(1, 2.0);
  EXPECT_DOUBLE_EQ(costs.cost(1), 2.0);
  // What was measured long before counts no more.
  for (int i = 0; i < 300; ++i) costs.add(4, 1.0);
  costs.add(1, 3.0);
  EXPECT_DOUBLE_EQ(costs.cost(1), 3.0);
}

TEST(RowCosts, NumbersOfRowsThatWereNotMeasuredLieOnALine) {
  RowCosts costs;
  costs.add(2, 10.0);
  EXPECT_DOUBLE_EQ(costs.cost(1), 10.0);
  EXPECT_DOUBLE_EQ(costs.cost(6), 12.0);
  costs.add(6, 14.0);
  EXPECT_DOUBLE_EQ(costs.cost(3), 11.0);
  EXPECT_DOUBLE_EQ(costs.cost(8), 16.0);
  costs.add(7, 9.0);
  EXPECT_DOUBLE_EQ(costs.cost(9), 9.0) << "more rows are never taken to be cheaper";
}

TEST(Acceptance, IsWhatWasSeen) {
  for (const double level : {0.1, 0.5, 0.9}) {
    Acceptance acceptance(0.5);
    const RandomStream random(3, Purpose::test);
    for (uint64_t i = 0; i < 200; ++i) {
      acceptance.add(0, random.uniform(i) < level ? 1.0 : 0.0);
      acceptance.next_round();
    }
    EXPECT_NEAR(acceptance.rate(0), level, 0.15);
    EXPECT_NEAR(acceptance.tokens(2), 1.0 + acceptance.rate(0) * (1.0 + acceptance.rate(1)), 1e-12);
  }
}

TEST(Acceptance, ASessionOfOneKindIsNotUnsettledByAFailureAndOneOfTwoKindsIs) {
  Acceptance one(0.5), two(0.5);
  for (int text = 0; text < 20; ++text) {
    for (int i = 0; i < 20; ++i) one.add(0, i % 3 == 0 ? 0.0 : 1.0);
    for (int i = 0; i < 20; ++i) two.add(0, text % 2 == 0 ? 0.0 : i % 8 == 0 ? 0.0 : 1.0);
    one.begin_text(), two.begin_text();
  }
  const double before_one = one.rate(0), before_two = two.rate(0);
  EXPECT_NEAR(before_one, 0.66, 0.08);
  EXPECT_NEAR(before_two, 0.44, 0.12);
  for (int i = 0; i < 2; ++i) one.add(0, 0.0), two.add(0, 0.0);
  EXPECT_GT(one.rate(0), 0.7 * before_one);
  EXPECT_LT(two.rate(0), 0.3 * before_two);
}

TEST(Acceptance, SlotsThatAreWorseThanTheFirstAreKnownToBe) {
  Acceptance acceptance(0.5);
  for (int i = 0; i < 100; ++i) {
    acceptance.add(0, 1.0);
    acceptance.add(1, i % 4 == 0 ? 1.0 : 0.0);
    acceptance.next_round();
  }
  EXPECT_LT(acceptance.rate(1), 0.65 * acceptance.rate(0));
}

// ---- whole sessions, on a clock of their own ----

DecodeOptions greedy(int64_t tokens, Pace* pace = nullptr) {
  DecodeOptions options;
  options.sampling.max_new_tokens = tokens;
  options.pace = pace;
  return options;
}

// Texts by a draft whose tokens are right with a probability that a test sets, and what they cost in plain steps.
class Session {
 public:
  explicit Session(Prices prices = {}, PaceOptions options = {})
      : target_(kVocab, 3, 2.0, clock_, prices),
        oracle_(4, [this](int64_t position, int64_t) { return token(position); }),
        draft_(oracle_, clock_, prices) {
    options.clock = [this] { return clock_; };
    pace_ = std::make_unique<Pace>(options);
  }

  struct Cost {
    double plain = 0.0, drafted = 0.0, paced = 0.0;
    int64_t proposals = 0;  // of the draft, under the pace
    AcceptanceCounts counts;
    Cost& operator+=(const Cost& more) {
      plain += more.plain, drafted += more.drafted, paced += more.paced, proposals += more.proposals;
      counts.add(more.counts);
      return *this;
    }
  };

  // One text: plainly, with the draft in every round, and under the pace.
  Cost text(double right, int64_t tokens = 64, bool lookup = false) {
    right_ = right;
    const std::vector<int64_t> prompt = {texts_ % kVocab, texts_ / kVocab % kVocab, 5, 7};
    ++texts_;
    Cost cost;
    const auto timed = [&](double& seconds, const auto& run) {
      const double before = clock_;
      Decoded decoded = run();
      seconds = clock_ - before;
      return decoded;
    };
    const Decoded plain = timed(cost.plain, [&] { return decode_plain(target_, prompt, greedy(tokens)); });
    truth_ = prompt;
    truth_.insert(truth_.end(), plain.tokens.begin(), plain.tokens.end());
    PromptLookup looking;
    draft::Proposer& proposer = lookup ? static_cast<draft::Proposer&>(looking) : draft_;
    const Decoded drafted =
        timed(cost.drafted, [&] { return decode_speculative(target_, proposer, prompt, greedy(tokens)); });
    const int64_t before = oracle_.proposals;
    const Decoded paced =
        timed(cost.paced, [&] { return decode_speculative(target_, proposer, prompt, greedy(tokens, pace_.get())); });
    cost.proposals = oracle_.proposals - before;
    cost.counts = paced.counts();
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(paced.tokens, plain.tokens);
    return cost;
  }
  Cost texts(int count, double right, int64_t tokens = 64, bool lookup = false) {
    Cost sum;
    for (int i = 0; i < count; ++i) sum += text(right, tokens, lookup);
    return sum;
  }

  const CostedProposer& draft() const { return draft_; }
  Pace& pace() { return *pace_; }

 private:
  int64_t token(int64_t position) {
    const int64_t truth = truth_[std::min(static_cast<size_t>(position), truth_.size() - 1)];
    // The same at every visit, so that the ways of decoding differ in nothing else.
    const auto draw = static_cast<uint64_t>(4096 * texts_ + position);
    return chance_.uniform(draw) < right_ ? truth : (truth + 1) % kVocab;
  }

  double clock_ = 0.0, right_ = 0.5;
  CostedTarget target_;
  test::Oracle oracle_;
  CostedProposer draft_;
  std::unique_ptr<Pace> pace_;
  std::vector<int64_t> truth_;
  int64_t texts_ = 0;
  const RandomStream chance_{17, Purpose::test};
};

PaceOptions draft_alone() {
  PaceOptions options;
  options.lookup = false;
  return options;
}

// A pass whose second row costs much more than the following ones, as products that change their kernel do.
Prices steep() {
  Prices prices;
  prices.target = [](int64_t rows) { return rows == 1 ? 1.0 : 1.55 + 0.03 * static_cast<double>(rows); };
  return prices;
}

TEST(Pace, ADraftThatNeverHelpsCostsNextToNothing) {
  for (const double right : {0.0, 0.1, 0.2}) {
    for (const Prices& prices : {Prices(), steep()}) {
      Session session(prices, draft_alone());
      const Session::Cost cost = session.texts(20, right);
      EXPECT_GT(cost.plain / cost.paced, 0.98) << right;
      EXPECT_LT(cost.plain / cost.drafted, 0.97) << right << ": the draft as it is loses";
      EXPECT_GT(cost.proposals, 8) << "it is tried again and again";
      EXPECT_GT(cost.counts.idle, cost.counts.rounds * 8 / 10);
    }
  }
}

TEST(Pace, ADraftThatHelpsIsUsed) {
  for (const double right : {0.5, 0.7, 0.9}) {
    Session session(Prices(), draft_alone());
    const Session::Cost cost = session.texts(20, right);
    EXPECT_GT(cost.plain / cost.drafted, 1.3) << right << ": the draft as it is pays";
    EXPECT_GT(cost.plain / cost.paced, 0.96 * cost.plain / cost.drafted) << right;
  }
}

TEST(Pace, NoDraftAndNoPriceMakeItSlower) {
  for (const double right : {0.0, 0.15, 0.3, 0.45, 0.6, 0.8}) {
    for (const double proposal : {0.05, 0.3, 1.0}) {
      for (const bool expensive : {false, true}) {
        Prices prices = expensive ? steep() : Prices();
        prices.proposal = proposal;
        Session session(prices, draft_alone());
        const Session::Cost cost = session.texts(20, right);
        const double paced = cost.plain / cost.paced, drafted = cost.plain / cost.drafted;
        EXPECT_GT(paced, 0.98) << right << " at " << proposal << (expensive ? ", steep" : "");
        if (drafted < 1.3) continue;  // where little can be won, little may be lost on finding out
        EXPECT_GT(paced, 0.9 * drafted) << right << " at " << proposal << (expensive ? ", steep" : "");
      }
    }
  }
}

TEST(Pace, ComesBackWhenTheTextsChange) {
  Session session(Prices(), draft_alone());
  session.texts(20, 0.05);
  Session::Cost after;
  for (int i = 0; i < 10; ++i) after += session.text(0.7);
  EXPECT_GT(after.plain / after.paced, 0.85 * after.plain / after.drafted);
  const Session::Cost back = session.texts(20, 0.05);
  EXPECT_GT(back.plain / back.paced, 0.97);
}

TEST(Pace, AnIdleDraftDoesNoWork) {
  Session session(Prices(), draft_alone());
  session.texts(20, 0.0);
  const Session::Cost cost = session.text(0.0, 1000);
  EXPECT_LE(cost.proposals, 20);
  EXPECT_EQ(cost.proposals, cost.counts.rounds - cost.counts.idle);
  EXPECT_GT(session.draft().most_caught_up, 40) << "what it missed is made up for at once";
}

TEST(Pace, PromptLookupIsTakenWhereItDoesBetter) {
  // The toy target's greedy text runs into a cycle, which lookup finds.
  Session both;
  const Session::Cost useless = both.texts(10, 0.0, 200);
  EXPECT_GT(useless.plain / useless.paced, 2.0);
  EXPECT_GT(useless.counts.looked_up, useless.counts.rounds / 2);
  // Alone it is paced as well, and never the draft is asked.
  Session alone;
  const Session::Cost looked = alone.texts(10, 0.0, 200, /*lookup=*/true);
  EXPECT_GT(looked.plain / looked.paced, 2.0);
  EXPECT_EQ(looked.proposals, 0);
  EXPECT_EQ(looked.counts.looked_up + looked.counts.idle, looked.counts.rounds);
}

TEST(Pace, ProposalsAreAsLongAsTheyPay) {
  Prices cheap, expensive;
  cheap.target = [](int64_t) { return 1.0; };
  expensive.target = [](int64_t rows) { return 1.0 + 0.3 * static_cast<double>(rows - 1); };
  Session wide(cheap, draft_alone()), narrow(expensive, draft_alone());
  const AcceptanceCounts all = wide.texts(20, 0.6).counts, few = narrow.texts(20, 0.6).counts;
  const auto drafts = [](const AcceptanceCounts& counts) {
    return static_cast<double>(counts.proposed) / static_cast<double>(counts.rounds - counts.idle);
  };
  EXPECT_GT(drafts(all), 3.8);
  EXPECT_LT(drafts(few), 2.5);
  EXPECT_NEAR(wide.pace().pass_cost(5), 1.0, 1e-9);
  EXPECT_NEAR(narrow.pace().pass_cost(2), 1.3, 1e-9);
}

// ---- the cut ----

// A pace that has seen plain steps of one second, passes of `rows` rows and drafts with these confidences accepted.
Pace trained(const std::vector<double>& seconds_by_rows, PaceOptions options = {}) {
  options.clock = [] { return 0.0; };
  Pace pace(options);
  const auto round = [&](int64_t drafts) {
    Played played;
    played.verified = drafts;
    played.target_s = seconds_by_rows[static_cast<size_t>(drafts)];
    played.committed = {1};
    pace.played(played);
  };
  for (int64_t drafts = 0; drafts < static_cast<int64_t>(seconds_by_rows.size()); ++drafts) round(0), round(drafts);
  return pace;
}

float logit(double probability) { return static_cast<float>(std::log(probability / (1.0 - probability))); }

TEST(Pace, CutsBeforeTheFirstSlotThatDoesNotPay) {
  Pace pace = trained({1.0, 1.2, 1.4, 1.6, 1.8});
  Opening opening;
  opening.room = opening.draft = 4, opening.remaining = 100;
  pace.plan(opening);
  const auto kept = [&](const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) logits.push_back(logit(p));
    return pace.keep(logits);
  };
  EXPECT_EQ(kept({0.95, 0.95, 0.95, 0.95}), 4);
  EXPECT_EQ(kept({0.01, 0.99, 0.99, 0.99}), 0);
  EXPECT_EQ(kept({0.95, 0.95, 0.02, 0.99}), 2);
  EXPECT_EQ(kept({}), 0);
}

TEST(Pace, TheCutOfASlotReadsNoLaterConfidence) {
  Pace pace = trained({1.0, 1.6, 1.7, 1.8, 1.9});
  Opening opening;
  opening.room = opening.draft = 4, opening.remaining = 100;
  pace.plan(opening);
  const RandomStream random(4, Purpose::test);
  for (uint64_t i = 0; i < 300; ++i) {
    std::vector<float> logits;
    for (uint64_t k = 0; k < 4; ++k) logits.push_back(static_cast<float>(2.0 * random.normal(8 * i + k)));
    const int64_t kept = pace.keep(logits);
    // Whatever the slots behind the cut would have said, the cut is where it is; the same for slots that are kept.
    for (int64_t k = 0; k < 4; ++k) {
      std::vector<float> other(logits.begin(), logits.begin() + k + 1);
      for (uint64_t j = other.size(); j < 4; ++j)
        other.push_back(static_cast<float>(2.0 * random.normal(8 * i + 4 + j)));
      EXPECT_EQ(pace.keep(other) > k, kept > k) << i << " slot " << k;
    }
  }
}

// The machine has another speed every few rounds; what is compared is what was measured side by side.
TEST(Pace, AMachineThatChangesItsSpeedDoesNotMakeABadDraftLookGood) {
  const RandomStream random(8, Purpose::test);
  double speed = 1.0;
  uint64_t passes = 0;
  Prices prices;
  prices.target = [&](int64_t rows) {
    if (passes++ % 7 == 0) speed = std::exp(0.4 * random.normal(passes));
    return speed * (1.0 + 0.03 * static_cast<double>(rows - 1));
  };
  Session session(prices, draft_alone());
  const Session::Cost cost = session.texts(20, 0.05);
  EXPECT_LT(cost.proposals, 60);
  EXPECT_NEAR(session.pace().pass_cost(5), 1.12, 0.3);
}

TEST(Pace, SaysWhichOptionIsWrong) {
  PaceOptions options;
  options.trying = 1.5;
  EXPECT_THROW(Pace{options}, Error);
  options = {};
  options.allowance = -1.0;
  EXPECT_THROW(Pace{options}, Error);
}

}  // namespace
}  // namespace pacer::decode
