#include "plugins/simnpu/memory/blocks.h"

#include "plugins/simnpu/memory/arena.h"
#include "plugins/simnpu/memory/device_allocator.h"
#include "plugins/simnpu/memory/host_allocator.h"

namespace pacer::simnpu {
namespace {

History* find(uintptr_t address) {
  if (!Arena::get().contains(address)) return nullptr;
  if (Arena::get().pinned().contains(address)) return HostAllocator::get().history_at(address);
  return DeviceAllocator::get().history_at(address);
}

}  // namespace

const History* history_at(uintptr_t address) { return find(address); }

void note_access(const PastAccess& access, const VectorClock& host) {
  if (access.access.region.empty()) return;
  const uintptr_t address = access.access.region.begin();
  History* history = find(address);
  if (!history) return;
  history->add(access, host);
  if (Arena::get().pinned().contains(address)) HostAllocator::get().guard(address, host);
}

std::string describe(uintptr_t address) {
  return Arena::get().pinned().contains(address) ? HostAllocator::get().describe(address)
                                                 : DeviceAllocator::get().describe(address);
}

void relax_pinned_memory(const VectorClock& host) { HostAllocator::get().relax(host); }

}  // namespace pacer::simnpu
