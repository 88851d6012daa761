#include "pacer/text/bpe_vocabulary.h"

#include <algorithm>
#include <cstring>

#include "pacer/base/huge_pages.h"

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

size_t Vocabulary::slot_of(std::string_view text, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto high = static_cast<uint32_t>(hash >> 32);
  size_t slot = static_cast<size_t>(hash) & mask;
  while (slots_[slot].id >= 0 && (slots_[slot].hash != high || text_of(slots_[slot].id) != text))
    slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::set_slots(size_t count) {
  std::vector<Slot> old;
  old.reserve(count);
  advise_huge_pages(old.data(), count * sizeof(Slot));
  old.resize(count);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& full : old) {
    if (full.id < 0) continue;
    size_t slot = static_cast<size_t>(hash_bytes(text_of(full.id))) & mask;
    while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
    slots_[slot] = full;
  }
}

void Vocabulary::reserve(size_t count) {
  size_t wanted = std::max(slots_.size(), size_t{1024});
  while (wanted < 2 * count) wanted *= 2;
  if (wanted > slots_.size()) set_slots(wanted);
}

bool Vocabulary::add(std::string_view text, int32_t id) { return add(text, hash_bytes(text), id); }

size_t Vocabulary::add_all(std::span<const std::string_view> texts, std::span<const int32_t> ids) {
  constexpr size_t kTogether = 32;
  uint64_t hashes[kTogether];
  if (2 * (count_ + texts.size()) > slots_.size()) reserve(2 * (count_ + texts.size()));
  const size_t mask = slots_.size() - 1;
  for (size_t begin = 0; begin < texts.size(); begin += kTogether) {
    const size_t count = std::min(kTogether, texts.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_bytes(texts[begin + i]);
      __builtin_prefetch(&slots_[static_cast<size_t>(hashes[i]) & mask], /*rw=*/1);
    }
    for (size_t i = 0; i < count; ++i) {
      if (!add(texts[begin + i], hashes[i], ids[begin + i])) return begin + i;
    }
  }
  return texts.size();
}

bool Vocabulary::add(std::string_view text, uint64_t hash, int32_t id) {
  if (has(id)) return false;
  if (2 * (count_ + 1) > slots_.size()) reserve(2 * (count_ + 1));
  const size_t slot = slot_of(text, hash);
  if (slots_[slot].id >= 0) return false;
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  entries_[static_cast<size_t>(id)] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size())};
  bytes_ += text;
  slots_[slot] = {static_cast<uint32_t>(hash >> 32), id};
  ++count_;
  return true;
}

int32_t Vocabulary::id_of(std::string_view text) const {
  return slots_.empty() ? -1 : slots_[slot_of(text, hash_bytes(text))].id;
}

void Vocabulary::ids_of(std::span<const std::string_view> texts, std::span<int32_t> ids) const {
  constexpr size_t kTogether = 16;
  if (slots_.empty()) {
    std::fill(ids.begin(), ids.end(), -1);
    return;
  }
  const size_t mask = slots_.size() - 1;
  uint64_t hashes[kTogether];
  for (size_t begin = 0; begin < texts.size(); begin += kTogether) {
    const size_t count = std::min(kTogether, texts.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_bytes(texts[begin + i]);
      __builtin_prefetch(&slots_[static_cast<size_t>(hashes[i]) & mask]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Slot& slot = slots_[static_cast<size_t>(hashes[i]) & mask];
      if (slot.id >= 0) __builtin_prefetch(&entries_[static_cast<size_t>(slot.id)]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Slot& slot = slots_[static_cast<size_t>(hashes[i]) & mask];
      if (slot.id >= 0) __builtin_prefetch(text_of(slot.id).data());
    }
    for (size_t i = 0; i < count; ++i) ids[begin + i] = slots_[slot_of(texts[begin + i], hashes[i])].id;
  }
}

}  // namespace pacer::text
