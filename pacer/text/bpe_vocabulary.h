// The strings of a vocabulary and their ids, compact enough that a quarter of a million of them load in a blink.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pacer::text {

// Mixes a few bytes quickly; for tables in memory only, never stored.
uint64_t hash_bytes(std::string_view bytes);

class Vocabulary {
 public:
  // An id costs memory whether it is used or not. The largest vocabularies in use have a quarter of a million.
  static constexpr int64_t kMaxId = (int64_t{1} << 22) - 1;

  // False, and nothing added, when the string or the id is there already. 0 <= id <= kMaxId.
  bool add(std::string_view text, int32_t id);
  // add() of one after the other, with the waits for memory side by side, until one is refused: how many were added.
  size_t add_all(std::span<const std::string_view> texts, std::span<const int32_t> ids);
  int32_t id_of(std::string_view text) const;  // -1: not there
  // ids[i] = id_of(texts[i]), with the waits for memory of many look-ups side by side. Both of one length.
  void ids_of(std::span<const std::string_view> texts, std::span<int32_t> ids) const;
  void reserve(size_t count);  // a hint
  bool has(int64_t id) const { return id >= 0 && id < size() && entries_[static_cast<size_t>(id)].begin != kAbsent; }
  std::string_view text_of(int32_t id) const {
    const Entry& entry = entries_[static_cast<size_t>(id)];
    return {bytes_.data() + entry.begin, entry.length};
  }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }  // largest id + 1
  size_t count() const { return count_; }

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Entry {
    uint32_t begin = kAbsent;
    uint32_t length = 0;
  };
  struct Slot {
    uint32_t hash = 0;  // high half: an unequal string is passed without reading it
    int32_t id = -1;    // -1: empty
  };
  bool add(std::string_view text, uint64_t hash, int32_t id);
  void set_slots(size_t count);
  size_t slot_of(std::string_view text, uint64_t hash) const;  // where it is, or the empty slot where it belongs

  std::string bytes_;
  std::vector<Entry> entries_;  // by id
  std::vector<Slot> slots_;     // open addressing
  size_t count_ = 0;
};

}  // namespace pacer::text
