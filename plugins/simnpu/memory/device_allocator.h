// Stream-ordered caching allocator of device memory.
//
// A block that is freed goes straight back to the stream that it was allocated on, as on real devices: the next launch
// there comes after everything before. Streams named by record_stream delay that until their work is over. Handing a
// block out fills it with NaN on that stream, so a reader that nobody waited for really reads garbage; the fill is an
// access like any other, and the hazard checker names both kernels.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

#include "plugins/simnpu/memory/history.h"
#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  static DeviceAllocator& get();  // never destroyed

  c10::DataPtr allocate(size_t bytes) override;  // on the current device and stream; OutOfMemoryError
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // a context is no data pointer
  void copy_data(void* to, const void* from, size_t bytes) const override;
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override;
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override;
  void resetAccumulatedStats(c10::DeviceIndex index) override;
  void resetPeakStats(c10::DeviceIndex index) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override;  // free, total

  // With the runtime's mutex held:
  History* history_at(uintptr_t address);
  std::string describe(uintptr_t address) const;

 private:
  struct Block;
  struct Pool;
  struct Smaller {
    bool operator()(const Block* a, const Block* b) const;
  };
  DeviceAllocator();
  Pool& pool(c10::DeviceIndex index);
  Block* find(uintptr_t address) const;
  Block* take_free(Pool& pool, c10::StreamId stream, size_t bytes);
  Block* take_fresh(Pool& pool, c10::StreamId stream, size_t bytes);
  void split(Pool& pool, Block* block, size_t bytes);
  void put_back(Pool& pool, Block* block);
  void collect_finished(Pool& pool);
  void release_cached(Pool& pool);
  void hand_out(Pool& pool, Block* block, size_t requested);
  static void free_block(void* context);
  [[noreturn]] void refuse(Pool& pool, size_t bytes);

  std::vector<std::unique_ptr<Pool>> pools_;
  uint64_t serial_ = 0;
};

// The operator that this thread is in, for the names of allocations; null outside.
extern thread_local const std::string* current_operator;

}  // namespace pacer::simnpu
