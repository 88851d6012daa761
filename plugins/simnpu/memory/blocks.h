// What the runtime asks the two allocators about an address. All with the runtime's mutex held.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/simnpu/memory/history.h"

namespace pacer::simnpu {

// The history of the block at a face address; null for memory that is not the device's (pageable host memory).
const History* history_at(uintptr_t address);
void note_access(const PastAccess& access, const VectorClock& host);

// "byte 128 of an allocation of 4096 bytes on npu:0 (number 17, made by aten::mm.out)", for messages.
std::string describe(uintptr_t address);

// The host has learnt that work is over: gives it back its access to pinned memory.
void relax_pinned_memory(const VectorClock& host);

}  // namespace pacer::simnpu
