#include "pacer/text/bpe_vocabulary.h"

#include <cstring>

namespace pacer::text {

uint64_t hash_bytes(std::string_view bytes) {
  // Multiply-xorshift over eight bytes at a time.
  uint64_t state = 0x9E3779B97F4A7C15u ^ bytes.size();
  const auto mix = [&](uint64_t word) {
    state = (state ^ word) * 0xD6E8FEB86659FD93u;
    state ^= state >> 32;
  };
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    mix(word);
  }
  if (i < bytes.size()) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, bytes.size() - i);
    mix(word);
  }
  return state * 0xD6E8FEB86659FD93u ^ (state >> 29);
}

size_t Vocabulary::slot_of(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>(hash_bytes(text)) & mask;
  while (slots_[slot] >= 0 && text_of(slots_[slot]) != text) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, -1);
  for (size_t id = 0; id < entries_.size(); ++id) {
    if (entries_[id].begin != kAbsent) slots_[slot_of(text_of(static_cast<int32_t>(id)))] = static_cast<int32_t>(id);
  }
}

bool Vocabulary::add(std::string_view text, int32_t id) {
  if (has(id)) return false;
  if (2 * (count_ + 1) > slots_.size()) grow();
  const size_t slot = slot_of(text);
  if (slots_[slot] >= 0) return false;
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  entries_[static_cast<size_t>(id)] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size())};
  bytes_ += text;
  slots_[slot] = id;
  ++count_;
  return true;
}

int32_t Vocabulary::id_of(std::string_view text) const { return slots_.empty() ? -1 : slots_[slot_of(text)]; }

}  // namespace pacer::text
