// A block of device memory and the pool of one device; the insides of DeviceAllocator.
#pragma once

#include <iterator>

#include "plugins/simnpu/memory/device_allocator.h"

namespace pacer::simnpu {

struct DeviceAllocator::Block {
  uintptr_t address = 0;  // face
  size_t bytes = 0, requested = 0;
  c10::StreamId stream = 0;  // that it was allocated on and goes back to
  Pool* pool = nullptr;
  bool allocated = false;
  bool segment_begin = false, segment_end = false;
  uint64_t serial = 0;                   // of the allocation, for messages
  const std::string* made_by = nullptr;  // operator that allocated it
  std::set<c10::StreamId> users;         // named by record_stream
  std::vector<RecordingPtr> pending;     // freed: what its next owner comes after
  History history;
};

struct DeviceAllocator::Pool {
  c10::DeviceIndex device = 0;
  std::map<uintptr_t, std::unique_ptr<Block>> blocks;  // by address, free ones too
  std::map<c10::StreamId, std::set<Block*, Smaller>> free;
  std::vector<Block*> waiting;            // freed, and still used on another stream
  std::map<uintptr_t, uintptr_t> unused;  // parts of the device's memory in no segment: begin, end
  c10::CachingDeviceAllocator::DeviceStats stats;

  void give_up(uintptr_t begin, uintptr_t end) {
    const auto right = unused.find(end);
    if (right != unused.end()) {
      end = right->second;
      unused.erase(right);
    }
    const auto after = unused.upper_bound(begin);
    if (after != unused.begin() && std::prev(after)->second == begin) {
      std::prev(after)->second = end;
    } else {
      unused[begin] = end;
    }
  }
};

}  // namespace pacer::simnpu
