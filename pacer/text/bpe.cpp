#include "pacer/text/bpe.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "pacer/base/error.h"
#include "pacer/base/huge_pages.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {
namespace {

constexpr char32_t kLowCharacters = 0x400;
constexpr size_t kNeighbourBits = size_t{1} << 20;
// Below this many symbols looking at all pairs beats keeping a queue.
constexpr size_t kShortWord = 32;
constexpr size_t kCutAbove = 24;  // bytes; shorter pieces go to the cache as they are

uint64_t pair_of(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

// Pairs of characters below U+0400 have a bit of their own, which is all that byte-level vocabularies hold; others
// share the bits behind them.
size_t neighbour_bit(char32_t left, char32_t right) {
  static_assert(kNeighbourBits == size_t{kLowCharacters} * kLowCharacters);
  if (left < kLowCharacters && right < kLowCharacters) return size_t{left} * kLowCharacters + right;
  return kNeighbourBits + (mix((static_cast<uint64_t>(left) << 32) | right) & (kNeighbourBits - 1));
}

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, const MergeList& merges, BpeOptions options, const std::string& place)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  if (!options_.unknown_token.empty()) {
    unknown_id_ = vocabulary_.id_of(options_.unknown_token);
    if (unknown_id_ < 0) {
      throw Error(ErrorKind::format, place + ".unk_token: \"" + options_.unknown_token + "\" is not in the vocabulary");
    }
  }
  low_characters_.assign(kLowCharacters, -1);
  for (char32_t c = 0; c < kLowCharacters; ++c) {
    std::string text;
    append_utf8(text, c);
    low_characters_[c] = vocabulary_.id_of(text);
  }
  byte_ids_.assign(256, -1);
  for (unsigned byte = 0; options_.byte_fallback && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    byte_ids_[byte] = vocabulary_.id_of(name);
  }

  if (merges.size() > (size_t{1} << 24)) throw Error(ErrorKind::format, place + ".merges: more than 2^24 merges");
  size_t capacity = 16;
  while (capacity < 2 * merges.size()) capacity *= 2;
  merges_.reserve(capacity);
  advise_huge_pages(merges_.data(), capacity * sizeof(Merge));
  merges_.assign(capacity, Merge{});
  neighbours_.assign(2 * kNeighbourBits / 64, 0);
  const size_t prefix = options_.continuing_subword_prefix.size();
  constexpr size_t kTogether = 64;  // merges whose look-ups go side by side
  std::vector<std::string> merged_texts(std::min(kTogether, merges.size()));
  std::vector<std::string_view> texts(2 * merged_texts.size());
  std::vector<int32_t> ids(texts.size());
  int32_t merged_id = -1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const size_t at = rank % kTogether;
    if (at == 0) {
      const size_t count = std::min(kTogether, merges.size() - rank);
      for (size_t i = 0; i < count; ++i) {
        const auto& [left, right] = merges[rank + i];
        merged_texts[i].assign(left).append(right, std::min(prefix, right.size()));
        texts[2 * i] = left;
        texts[2 * i + 1] = right;
      }
      vocabulary_.ids_of(std::span(texts).first(2 * count), std::span(ids).first(2 * count));
      for (size_t i = 0; i < count; ++i) {
        __builtin_prefetch(&merges_[mix(pair_of(ids[2 * i], ids[2 * i + 1])) & (capacity - 1)], /*rw=*/1);
      }
    }
    const std::string& merged = merged_texts[at];
    // Vocabularies are numbered in the order in which training merged: the next id is the next merge's, nearly always.
    const int32_t guess = merged_id + 1;
    merged_id = vocabulary_.has(guess) && vocabulary_.text_of(guess) == merged ? guess : vocabulary_.id_of(merged);
    const int32_t left_id = ids[2 * at], right_id = ids[2 * at + 1];
    if (left_id < 0 || right_id < 0 || merged_id < 0) {
      const std::string_view missing = left_id < 0 ? texts[2 * at] : right_id < 0 ? texts[2 * at + 1] : merged;
      throw Error(
          ErrorKind::format,
          place + ".merges[" + std::to_string(rank) + "]: \"" + std::string(missing) + "\" is not in the vocabulary",
          "vocabulary and merges belong to different tokenizers, or the file was cut");
    }
    const uint64_t pair = pair_of(left_id, right_id);
    size_t slot = mix(pair) & (capacity - 1);
    while (merges_[slot].pair != kNoPair && merges_[slot].pair != pair) slot = (slot + 1) & (capacity - 1);
    merges_[slot] = {pair, static_cast<uint32_t>(rank), merged_id};  // listed twice: the later rank counts
    note_neighbours(texts[2 * at], texts[2 * at + 1].substr(std::min(prefix, texts[2 * at + 1].size())));
  }
  // A cut part must not meet the whole-piece look-up, and affixes depend on where the piece ends.
  cuts_allowed_ = !options_.ignore_merges && prefix == 0 && options_.end_of_word_suffix.empty();
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = merges_.size() - 1;
  for (size_t slot = mix(pair) & mask;; slot = (slot + 1) & mask) {
    if (merges_[slot].pair == pair) return &merges_[slot];
    if (merges_[slot].pair == kNoPair) return nullptr;
  }
}

MergeList BpeModel::merges() const {
  std::vector<const Merge*> used;
  for (const Merge& merge : merges_) {
    if (merge.pair != kNoPair) used.push_back(&merge);
  }
  std::sort(used.begin(), used.end(), [](const Merge* a, const Merge* b) { return a->rank < b->rank; });
  MergeList list;
  list.reserve(used.size());
  for (const Merge* merge : used) {
    list.emplace_back(vocabulary_.text_of(static_cast<int32_t>(merge->pair >> 32)),
                      vocabulary_.text_of(static_cast<int32_t>(merge->pair & UINT32_MAX)));
  }
  return list;
}

int32_t BpeModel::character_id(std::string_view character) const {
  const CodePoint c = decode_utf8(character, 0);
  return c.value < kLowCharacters ? low_characters_[c.value] : vocabulary_.id_of(character);
}

void BpeModel::note_neighbours(std::string_view left, std::string_view right) {
  if (left.empty() || right.empty()) return;
  size_t last = left.size() - 1;
  while (last > 0 && (static_cast<unsigned char>(left[last]) & 0xC0) == 0x80) --last;
  // A token may be cut inside of a character; no text has such a one.
  if (last + utf8_length(left[last]) > left.size() || utf8_length(right[0]) > right.size()) return;
  const size_t bit = neighbour_bit(decode_utf8(left, last).value, decode_utf8(right, 0).value);
  neighbours_[bit / 64] |= uint64_t{1} << (bit % 64);
}

bool BpeModel::may_join(std::string_view left, std::string_view right) const {
  const size_t bit = neighbour_bit(decode_utf8(left, 0).value, decode_utf8(right, 0).value);
  return ((neighbours_[bit / 64] >> (bit % 64)) & 1) != 0;
}

void BpeModel::encode(std::string_view piece, BpeScratch& scratch, std::vector<Token>& out) const {
  if (piece.size() <= kCutAbove || !cuts_allowed_) return encode_part(piece, scratch, out);
  // Where two known characters never stand side by side inside a merged token, no merge can cross: the parts on both
  // sides are independent. Texts that no pre-tokenizer cuts so become words again, for which there is a cache.
  size_t begin = 0, at = 0;
  bool known = false;
  while (at < piece.size()) {
    const std::string_view character = piece.substr(at, utf8_length(piece[at]));
    const size_t next = at + character.size();
    const bool previous_known = known;
    known = character_id(character) >= 0;
    if (at > begin && known && previous_known) {
      size_t before = at - 1;
      while ((piece[before] & 0xC0) == 0x80) --before;
      if (!may_join(piece.substr(before, at - before), character)) {
        encode_part(piece.substr(begin, at - begin), scratch, out);
        begin = at;
      }
    }
    at = next;
  }
  encode_part(piece.substr(begin), scratch, out);
}

void BpeModel::encode_part(std::string_view part, BpeScratch& scratch, std::vector<Token>& out) const {
  const bool short_part = part.size() <= WordCache::kMaxWordBytes;
  const uint64_t hash = short_part ? hash_bytes(part) : 0;
  if (std::span<const Token> cached; short_part && scratch.cache.find(part, hash, cached)) {
    out.insert(out.end(), cached.begin(), cached.end());
    return;
  }
  const size_t first = out.size();
  const int32_t whole = options_.ignore_merges ? vocabulary_.id_of(part) : -1;
  if (whole >= 0) {
    out.push_back({whole, static_cast<uint32_t>(part.size())});
  } else {
    split_characters(part, scratch.symbols);
    if (scratch.symbols.size() <= kShortWord) {
      merge_short(scratch, out);
    } else {
      merge_long(scratch, out);
    }
  }
  if (short_part) scratch.cache.add(part, hash, std::span<const Token>(out).subspan(first));
}

void BpeModel::split_characters(std::string_view part, std::vector<BpeScratch::Symbol>& symbols) const {
  symbols.clear();
  uint32_t unknown_length = 0;  // of an unknown token that waits for what follows it
  const auto push = [&](int32_t id, uint32_t length) { symbols.push_back({id, length, 0, 0}); };
  const bool affixes = !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  std::string with_affixes;
  for (size_t at = 0; at < part.size();) {
    const uint32_t length = utf8_length(part[at]);
    std::string_view character = part.substr(at, length);
    if (affixes) {
      with_affixes.assign(at > 0 ? options_.continuing_subword_prefix : "").append(character);
      if (at + length == part.size()) with_affixes += options_.end_of_word_suffix;
      character = with_affixes;
    }
    at += length;
    if (const int32_t id = affixes ? vocabulary_.id_of(character) : character_id(character); id >= 0) {
      if (unknown_length > 0) push(unknown_id_, std::exchange(unknown_length, 0));
      push(id, length);
      continue;
    }
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (options_.byte_fallback &&
        std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (const char c : character) push(byte_id(c), 1);
      continue;
    }
    if (unknown_id_ < 0) continue;
    if (unknown_length > 0 && !options_.fuse_unknown) push(unknown_id_, std::exchange(unknown_length, 0));
    unknown_length += length;
  }
  if (unknown_length > 0) push(unknown_id_, unknown_length);
}

void BpeModel::merge_short(BpeScratch& scratch, std::vector<Token>& out) const {
  constexpr uint64_t kNone = UINT64_MAX;
  auto& symbols = scratch.symbols;
  auto& ranks = scratch.ranks;  // of the pair (i, i + 1): rank in the high half, merged id in the low one
  const auto rank_at = [&](size_t i) {
    const Merge* merge = find_merge(symbols[i].id, symbols[i + 1].id);
    return merge == nullptr ? kNone : (uint64_t{merge->rank} << 32) | static_cast<uint32_t>(merge->merged_id);
  };
  ranks.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) ranks.push_back(rank_at(i));
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());  // the leftmost of equals
    if (*best == kNone) break;
    const auto i = static_cast<size_t>(best - ranks.begin());
    symbols[i].id = static_cast<int32_t>(*best & UINT32_MAX);
    symbols[i].length += symbols[i + 1].length;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(best);
    if (i < ranks.size()) ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
  for (const auto& symbol : symbols) out.push_back({symbol.id, symbol.length});
}

void BpeModel::merge_long(BpeScratch& scratch, std::vector<Token>& out) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  // The best rank first, the leftmost of equals.
  const auto worse = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto offer = [&](int32_t position, bool heap) {
    const auto& left = symbols[static_cast<size_t>(position)];
    const Merge* merge = find_merge(left.id, symbols[static_cast<size_t>(left.next)].id);
    if (merge == nullptr) return;
    queue.push_back({merge->rank, position, merge->merged_id});
    if (heap) std::push_heap(queue.begin(), queue.end(), worse);
  };
  queue.clear();
  for (int32_t i = 0; i + 1 < count; ++i) offer(i, /*heap=*/false);
  std::make_heap(queue.begin(), queue.end(), worse);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), worse);
    const BpeScratch::Candidate top = queue.back();
    queue.pop_back();
    auto& left = symbols[static_cast<size_t>(top.position)];
    if (left.length == 0 || left.next < 0) continue;
    auto& right = symbols[static_cast<size_t>(left.next)];
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->merged_id != top.merged_id) continue;  // offered before a neighbour was merged
    left.id = top.merged_id;
    left.length += right.length;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) {
      symbols[static_cast<size_t>(left.next)].previous = top.position;
      offer(top.position, /*heap=*/true);
    }
    if (left.previous >= 0) offer(left.previous, /*heap=*/true);
  }
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    out.push_back({symbols[static_cast<size_t>(i)].id, symbols[static_cast<size_t>(i)].length});
  }
}

}  // namespace pacer::text
