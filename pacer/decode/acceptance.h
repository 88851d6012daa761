// How likely the next drafts are to be accepted, judged from those before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pacer::decode {

// A text has a level: the probability that a draft is accepted when the drafts before it were. The level is not known,
// now and then it changes, and every draft that is verified says something about it (a hidden Markov model, filtered by
// Bayes' rule over a grid of levels). What the levels of texts were so far is where the next text starts from, so that
// a session of one kind of text is not unsettled by a single failure, and a session of two kinds, one that is easy to
// draft and one that is not, knows after a failure or two which of them it is looking at.
class Acceptance {
 public:
  // expected: the mean level before anything was seen, 0 to 1.
  explicit Acceptance(double expected);

  void begin_text();
  // The drafts before `slot` were accepted; success: whether this one was, or how likely that is if it was not
  // verified.
  void add(int64_t slot, double success);
  // A round has gone by, with drafts or without: the level may have changed.
  void next_round();

  // Of a draft in this slot, given that those before it are accepted.
  double rate(int64_t slot) const;
  // Tokens of a round with so many drafts: 1 + sum over k < drafts of the probability that drafts 0..k are accepted.
  double tokens(int64_t drafts) const;

 private:
  static constexpr size_t kLevels = 11;
  using Weights = std::array<double, kLevels>;  // add up to 1
  struct Slot {
    double predicted = 0.0, accepted = 0.0;  // decayed sums
  };
  double survival(int64_t drafts) const;  // probability that all of them are accepted, slots alike
  double correction(int64_t slot) const;  // late slots may be worse (or better) than the level says

  static const Weights kLevel;
  Weights session_, text_;
  double seen_ = 0.0;  // drafts of this text
  std::vector<Slot> slots_;
};

}  // namespace pacer::decode
