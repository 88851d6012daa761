// What a draft was worth: counts that add up over prompts, and the rates that are read from them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::decode {

// Who proposed the drafts of a round.
enum class Source { none, draft, lookup };

// One verification of the target.
struct RoundRecord {
  int64_t start = 0;              // position of the anchor; its key and value were not yet in the cache
  std::vector<int64_t> verified;  // tokens sent to the target: anchor, then the drafts
  int64_t proposed = 0;           // drafts that count as proposed (see Verification::judged)
  int64_t accepted = 0;           // drafts kept in the text
  int64_t accepted_raw = 0;       // drafts that passed, also those behind an accepted stop token
  int64_t next_token = -1;        // correction or bonus; -1 after an accepted stop token
  bool stopped = false;
  Source source = Source::draft;
  bool trial = false;             // a pacing rule only wanted to see whether drafting pays
  std::vector<float> confidence;  // logits of the verified drafts, empty without a confidence head
  int64_t kept() const { return accepted + (stopped ? 0 : 1); }  // tokens this round added to the text
};

// Sums over rounds. Kept counts are tokens of the final text; a loop that never proposes past its limit cuts nothing
// off, so kept and raw differ only by drafts behind an accepted stop token.
struct AcceptanceCounts {
  int64_t samples = 0;                     // texts
  int64_t rounds = 0;                      // verifications by the target
  int64_t kept = 0;                        // tokens after the first of every text
  int64_t proposed = 0;                    // drafts judged
  int64_t accepted = 0, accepted_raw = 0;  // drafts kept; drafts that passed
  std::vector<int64_t> proposed_at;        // [K] rounds with more than k drafts
  std::vector<int64_t> accepted_at;        // [K] rounds with more than k accepted
  std::vector<int64_t> reached_at;         // [K] of proposed_at[k], rounds whose first k drafts were all accepted
  int64_t idle = 0, trials = 0;            // rounds in which nobody was asked; in which the draft was only tried
  int64_t looked_up = 0;                   // rounds in which a pacing rule took prompt lookup instead of the draft

  void add(const RoundRecord& round);
  void add(const AcceptanceCounts& other);

  // Tokens after the first per round: the bonus or correction is counted, a stop-token ending has none.
  std::optional<double> acceptance_length() const;
  std::optional<double> drafts_per_round() const;
  std::optional<double> verify_rate() const;  // kept / tokens that the target computed
  // Share of the proposals longer than k whose drafts 0..k were all accepted.
  std::vector<std::optional<double>> survival() const;
  // Acceptance of draft k given that the drafts before it were accepted.
  std::vector<std::optional<double>> conditional() const;
  Json to_json() const;  // counts and rates; undefined rates are null
};

}  // namespace pacer::decode
