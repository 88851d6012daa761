// What the device allocator tells about itself: statistics, and the names of allocations.
#include <sstream>

#include <c10/util/Exception.h>

#include "plugins/simnpu/memory/arena.h"
#include "plugins/simnpu/memory/block.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {

void DeviceAllocator::copy_data(void*, const void*, size_t) const {
  TORCH_CHECK(false, "npu: device memory is copied by aten::copy_ on a stream, not by the allocator");
}

void DeviceAllocator::recordStream(const c10::DataPtr& data, c10::Stream stream) {
  auto* block = static_cast<Block*>(data.get_context());
  if (!block) return;  // no bytes
  const std::lock_guard lock(Runtime::get().mutex());
  TORCH_CHECK(stream.device_index() == block->pool->device,
              "npu: record_stream: memory of npu:", static_cast<int>(block->pool->device),
              " and a stream of npu:", static_cast<int>(stream.device_index()));
  if (stream.id() != block->stream) block->users.insert(stream.id());
}

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex index) {
  const std::lock_guard lock(Runtime::get().mutex());
  return pool(index).stats;
}

namespace {
template <class Change>
void for_each_statistic(c10::CachingDeviceAllocator::DeviceStats& stats, const Change& change) {
  for (auto* array : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes, &stats.reserved_bytes,
                      &stats.active_bytes, &stats.requested_bytes}) {
    change((*array)[0]);
  }
}
}  // namespace

void DeviceAllocator::resetAccumulatedStats(c10::DeviceIndex index) {
  const std::lock_guard lock(Runtime::get().mutex());
  auto& stats = pool(index).stats;
  for_each_statistic(stats, [](auto& statistic) { statistic.reset_accumulated(); });
  stats.num_alloc_retries = stats.num_ooms = stats.num_device_alloc = stats.num_device_free = 0;
}

void DeviceAllocator::resetPeakStats(c10::DeviceIndex index) {
  const std::lock_guard lock(Runtime::get().mutex());
  for_each_statistic(pool(index).stats, [](auto& statistic) { statistic.reset_peak(); });
}

std::pair<size_t, size_t> DeviceAllocator::getMemoryInfo(c10::DeviceIndex index) {
  const std::lock_guard lock(Runtime::get().mutex());
  const auto reserved = static_cast<size_t>(pool(index).stats.reserved_bytes[0].current);
  return {settings().memory_bytes - reserved, settings().memory_bytes};
}

DeviceAllocator::Block* DeviceAllocator::find(uintptr_t address) const {
  for (const auto& own : pools_) {
    const auto after = own->blocks.upper_bound(address);
    if (after == own->blocks.begin()) continue;
    Block* block = std::prev(after)->second.get();
    if (address < block->address + block->bytes) return block;
  }
  return nullptr;
}

History* DeviceAllocator::history_at(uintptr_t address) {
  Block* block = find(address);
  return block ? &block->history : nullptr;
}

std::string DeviceAllocator::describe(uintptr_t address) const {
  std::ostringstream text;
  const Block* block = find(address);
  if (!block) return "device memory in no allocation";
  text << "byte " << address - block->address << " of ";
  if (block->allocated) {
    text << "allocation " << block->serial << " (" << block->requested
         << " bytes on npu:" << static_cast<int>(block->pool->device) << " stream " << block->stream;
    if (block->made_by) text << ", made by " << *block->made_by;
    text << ")";
  } else {
    text << "a block that was freed (" << block->bytes << " bytes on npu:" << static_cast<int>(block->pool->device)
         << ", once allocation " << block->serial << ")";
  }
  if (const PastAccess* last = block->history.latest()) {
    text << (last->access.write ? ", last written by " : ", last read by ") << *last->kernel;
  }
  return text.str();
}

}  // namespace pacer::simnpu
