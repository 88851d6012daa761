// Cutting pieces at matches: what becomes of the matched text.
#pragma once

#include <algorithm>
#include <vector>

#include "pacer/text/tokenizer_component.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Reads a behaviour's name. Throws Error{format} with the path.
SplitBehavior parse_split_behavior(const Component& config, const std::string& key);

// Collects the parts of one piece, matched or not, from left to right and hands out the pieces they form.
class PieceCutter {
 public:
  PieceCutter(std::vector<Piece>& out, SplitBehavior behavior) : out_(out), behavior_(behavior) {}
  void start() { first_ = out_.size(), previous_matched_ = false, parts_.clear(); }
  void add(uint32_t begin, uint32_t end, bool matched) {
    if (begin == end && behavior_ != SplitBehavior::merged_with_next) {
      previous_matched_ = matched;
      return;
    }
    bool join = false;
    switch (behavior_) {
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::removed:
        if (matched) return;
        break;
      case SplitBehavior::contiguous:
        join = matched == previous_matched_;
        break;
      case SplitBehavior::merged_with_previous:
        join = matched && !previous_matched_;
        break;
      case SplitBehavior::merged_with_next:
        parts_.push_back({begin, end, matched});
        return;
    }
    previous_matched_ = matched;
    if (join && out_.size() > first_) {
      out_.back().end = end;
    } else {
      out_.push_back({begin, end, -1});
    }
  }
  void finish() {
    if (behavior_ != SplitBehavior::merged_with_next) return;
    // From the right: a match joins what follows it, unless that is a match as well.
    bool next_matched = false;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
      if (part->matched && !next_matched && out_.size() > first_) {
        out_.back().begin = part->begin;
      } else {
        out_.push_back({part->begin, part->end, -1});
      }
      next_matched = part->matched;
    }
    const auto start = out_.begin() + static_cast<std::ptrdiff_t>(first_);
    std::reverse(start, out_.end());
    out_.erase(std::remove_if(start, out_.end(), [](const Piece& piece) { return piece.begin == piece.end; }),
               out_.end());
  }

 private:
  struct Part {
    uint32_t begin, end;
    bool matched;
  };
  std::vector<Piece>& out_;
  SplitBehavior behavior_;
  size_t first_ = 0;
  bool previous_matched_ = false;
  std::vector<Part> parts_;
};

// matches(piece_text, found): calls found(begin, end) for every match, in bytes of the piece, from left to right.
// invert: what is not matched counts as matched and the other way round.
template <typename Matches>
void split_pieces(SplitText& text, SplitBehavior behavior, bool invert, Matches&& matches) {
  text.next_pieces.clear();
  PieceCutter cutter(text.next_pieces, behavior);
  for (const Piece& piece : text.pieces) {
    if (piece.id >= 0) {
      text.next_pieces.push_back(piece);
      continue;
    }
    cutter.start();
    uint32_t done = piece.begin;
    matches(text.text_of(piece), [&](size_t begin, size_t end) {
      const auto from = piece.begin + static_cast<uint32_t>(begin), to = piece.begin + static_cast<uint32_t>(end);
      if (done < from) cutter.add(done, from, invert);
      cutter.add(from, to, !invert);
      done = to;
    });
    if (done < piece.end) cutter.add(done, piece.end, invert);
    cutter.finish();
  }
  text.adopt_pieces();
}

// As above, every character for which `is_match` holds being a match of its own.
template <typename IsMatch>
void split_at_characters(SplitText& text, SplitBehavior behavior, IsMatch&& is_match) {
  split_pieces(text, behavior, false, [&](std::string_view piece, auto&& found) {
    for (size_t at = 0; at < piece.size();) {
      const CodePoint c = decode_utf8(piece, at);
      if (is_match(c.value)) found(at, at + c.length);
      at += c.length;
    }
  });
}

}  // namespace pacer::text
