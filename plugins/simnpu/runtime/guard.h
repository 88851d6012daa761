// Registers the simulated device with c10: name, guard, hooks, allocators.
#pragma once

namespace pacer::simnpu {

void register_device();  // once per process

}  // namespace pacer::simnpu
