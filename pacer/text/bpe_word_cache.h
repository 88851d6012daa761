// What words were merged into, for the words seen lately: natural text repeats itself.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "pacer/text/bpe_vocabulary.h"

namespace pacer::text {

struct Token {
  int32_t id;
  uint32_t length;  // bytes of the piece that it stands for
};

// Bounded: when full it starts anew, which costs less than keeping an order. Not shared between threads.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 64;

  bool find(std::string_view word, uint64_t hash, std::span<const Token>& tokens) const {
    if (slots_.empty()) return false;
    for (size_t slot = hash & kMask;; slot = (slot + 1) & kMask) {
      const Slot& entry = slots_[slot];
      if (entry.token_count == 0) return false;
      if (entry.hash == hash && entry.word_length == word.size() &&
          std::memcmp(words_.data() + entry.word_begin, word.data(), word.size()) == 0) {
        tokens = {tokens_.data() + entry.token_begin, entry.token_count};
        return true;
      }
    }
  }

  // word.size() <= kMaxWordBytes; the word is not in the cache.
  void add(std::string_view word, uint64_t hash, std::span<const Token> tokens) {
    if (tokens.empty()) return;
    if (slots_.empty() || count_ == kMaxWords || words_.size() + word.size() > kMaxBytes) clear();
    size_t slot = hash & kMask;
    while (slots_[slot].token_count != 0) slot = (slot + 1) & kMask;
    slots_[slot] = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(tokens_.size()),
                    static_cast<uint16_t>(word.size()), static_cast<uint16_t>(tokens.size())};
    words_.insert(words_.end(), word.begin(), word.end());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    ++count_;
  }

 private:
  static constexpr size_t kSlots = size_t{1} << 16, kMask = kSlots - 1, kMaxWords = kSlots / 2;
  static constexpr size_t kMaxBytes = kMaxWords * 16;
  struct Slot {
    uint64_t hash;
    uint32_t word_begin, token_begin;
    uint16_t word_length, token_count;  // token_count 0: empty
  };

  void clear() {
    slots_.assign(kSlots, Slot{});
    words_.clear();
    tokens_.clear();
    count_ = 0;
  }

  std::vector<Slot> slots_;
  std::vector<char> words_;
  std::vector<Token> tokens_;
  size_t count_ = 0;
};

}  // namespace pacer::text
