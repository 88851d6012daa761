// The working memory of Tokenizer::encode().
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pacer/text/bpe.h"
#include "pacer/text/tokenizer_added.h"
#include "pacer/text/tokenizer_post.h"
#include "pacer/text/tokenizer_regex.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {

// What one call of encode() works with. Kept between calls for the sake of its word cache and its buffers.
struct Scratch {
  RegexScratch regex;
  BpeScratch bpe;
  SplitText split;
  MappedText mapped;
  std::vector<AddedMatch> raw_matches, inner_matches;
  std::vector<Token> tokens;
  std::vector<TokenSpaces> spaces;
};

// Hands out working memory to one call at a time; never more of it than calls ran at once.
class ScratchPool {
 public:
  class Lease {
   public:
    explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
    ~Lease() { pool_.give_back(std::move(scratch_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Scratch& operator*() { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  std::unique_ptr<Scratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }
  void give_back(std::unique_ptr<Scratch> scratch) {
    // One huge text must not hold its memory for ever; the word cache is worth keeping.
    if (scratch->split.storage.capacity() + scratch->split.next_storage.capacity() > kKeepBytes) {
      scratch->split = SplitText{};
      scratch->mapped = MappedText{};
    }
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

  static constexpr size_t kKeepBytes = size_t{16} << 20;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

}  // namespace pacer::text
