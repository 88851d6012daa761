// Pinned host memory. Work that the host has not waited for keeps the host out of what it uses: a read of a buffer that
// a copy may still write, or a write to one that a copy may still read, is reported by the next call of the device.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include <ATen/core/CachingHostAllocator.h>

#include "plugins/simnpu/memory/history.h"
#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {

class HostAllocator final : public at::HostAllocator {
 public:
  static HostAllocator& get();  // never destroyed

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override;
  // The memory is not reused before what is queued on the stream now is over. Freeing a buffer that a stream uses
  // without this is a hazard.
  bool record_event(void* data, void* context, c10::Stream stream) override;
  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override;

  bool is_pinned(const void* address);

  // With the runtime's mutex held:
  History* history_at(uintptr_t address);
  std::string describe(uintptr_t address) const;
  void guard(uintptr_t address, const VectorClock& host);  // an access was added to this block
  void relax(const VectorClock& host);
  // A fault of the host in pinned memory: reports the hazard if there is one and lets the access happen. False: the
  // address is in no buffer.
  bool handle_fault_locked(uintptr_t address, bool write, const VectorClock& host);

 private:
  struct Block {
    uintptr_t address = 0;  // face
    size_t bytes = 0, requested = 0;
    bool allocated = false;
    std::map<Actor, c10::Stream> users;  // told by record_event
    std::vector<RecordingPtr> pending;   // freed: not reused before these
    History history;
  };
  HostAllocator();
  Block* find(uintptr_t address) const;
  void restrict(Block& block, const VectorClock& host);
  static void free_block(void* context);

  std::map<uintptr_t, std::unique_ptr<Block>> blocks_;
  std::multimap<size_t, Block*> free_;
  std::vector<Block*> waiting_;
  std::set<Block*> guarded_;
  uintptr_t next_, end_;  // memory that no block had yet
  at::HostStats stats_;
};

}  // namespace pacer::simnpu
