// Byte pair encoding (Sennrich, Haddow and Birch 2016): characters joined pair by pair in the order of the merge list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pacer/text/bpe_vocabulary.h"
#include "pacer/text/bpe_word_cache.h"

namespace pacer::text {

using MergeList = std::vector<std::pair<std::string, std::string>>;  // best first

struct BpeOptions {
  std::string unknown_token;   // empty: characters without a token leave no trace
  bool fuse_unknown = false;   // neighbouring unknown characters become one token
  bool byte_fallback = false;  // unknown characters become tokens "<0x00>" to "<0xFF>"
  bool ignore_merges = false;  // a piece that is a token as a whole is that token
  std::string continuing_subword_prefix, end_of_word_suffix;
};

// Working memory of one thread.
struct BpeScratch {
  struct Symbol {
    int32_t id;
    uint32_t length;  // bytes; 0: joined to the symbol before
    int32_t previous, next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t position, merged_id;
  };
  WordCache cache;
  std::vector<Symbol> symbols;
  std::vector<Candidate> queue;
  std::vector<uint64_t> ranks;
  std::vector<Token> word;
};

// Immutable, usable from several threads.
class BpeModel {
 public:
  // place: JSON path of the model. Throws Error{format} when a merge or the unknown token is not in the vocabulary.
  BpeModel(Vocabulary vocabulary, const MergeList& merges, BpeOptions options, const std::string& place);

  // Adds the tokens of one piece to `out`. Time n log n in the length of the piece.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<Token>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }
  MergeList merges() const;  // best first

 private:
  struct Merge {
    uint64_t pair = kNoPair;  // left id in the high half
    uint32_t rank = 0;
    int32_t merged_id = 0;
  };
  static constexpr uint64_t kNoPair = UINT64_MAX;
  const Merge* find_merge(int32_t left, int32_t right) const;
  int32_t character_id(std::string_view character) const;
  bool may_join(std::string_view left, std::string_view right) const;
  // The characters on both sides of a join. Those inside of its parts are of the joins that made the parts.
  void note_neighbours(std::string_view left, std::string_view right);
  void encode_part(std::string_view part, BpeScratch& scratch, std::vector<Token>& out) const;
  void split_characters(std::string_view part, std::vector<BpeScratch::Symbol>& symbols) const;
  void merge_short(BpeScratch& scratch, std::vector<Token>& out) const;
  void merge_long(BpeScratch& scratch, std::vector<Token>& out) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  int32_t unknown_id_ = -1;
  std::vector<int32_t> low_characters_;  // ids of one-character tokens below U+0400
  std::vector<int32_t> byte_ids_;        // of "<0x00>" ... "<0xFF>"
  std::vector<Merge> merges_;            // open addressing
  std::vector<uint64_t> neighbours_;     // bits: character pairs across which any merge joins
  bool cuts_allowed_ = false;
};

}  // namespace pacer::text
