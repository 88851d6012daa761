#include "plugins/simnpu/memory/fault.h"

#include <csignal>
#include <cstdint>
#include <mutex>
#include <string>

#include <ucontext.h>
#include <unistd.h>

#include "plugins/simnpu/memory/arena.h"
#include "plugins/simnpu/memory/device_allocator.h"
#include "plugins/simnpu/memory/host_allocator.h"

namespace pacer::simnpu {
namespace {

struct sigaction previous;

bool is_write(const void* context) {
#if defined(__x86_64__)
  constexpr auto kWriteBit = 2;  // of the page fault's error code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
#else
  (void)context;
  return false;
#endif
}

// Strings and a lock in a signal handler: it interrupts an access to the arena, and nobody touches the arena's faces
// with the runtime's mutex or an allocator's lock held.
bool explain(uintptr_t address, bool write) {
  const Arena& arena = Arena::get();
  if (!arena.contains(address)) return false;
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (arena.pinned().contains(address)) {
    return HostAllocator::get().handle_fault_locked(address, write, runtime.host_clock());
  }
  const std::string message = "simnpu: the host " + std::string(write ? "writes" : "reads") +
                              " device memory: " + DeviceAllocator::get().describe(address) +
                              (current_operator ? ", inside " + *current_operator : "") +
                              ". Only kernels may; copy the tensor to the CPU first.\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message.data(), message.size());
  return false;
}

void handle(int signal, siginfo_t* info, void* context) {
  if (info->si_code > 0 && explain(reinterpret_cast<uintptr_t>(info->si_addr), is_write(context))) return;
  // Returning runs the access again, under the handler that was there before. A signal that somebody sent does not
  // come again by itself.
  sigaction(signal, &previous, nullptr);
  if (info->si_code <= 0) raise(signal);
}

}  // namespace

void install_fault_handler() {
  struct sigaction action{};
  action.sa_sigaction = &handle;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous);
}

}  // namespace pacer::simnpu
