// What happens when the host touches memory of the arena without the right to.
#pragma once

namespace pacer::simnpu {

// Installs the handler of SIGSEGV. A touch of device memory is fatal: the handler writes which allocation it was to
// standard error, and the signal takes its course. A touch of pinned memory that work still uses becomes a hazard that
// the next call of the device throws. Every other fault goes to the handler that was there before.
void install_fault_handler();

}  // namespace pacer::simnpu
