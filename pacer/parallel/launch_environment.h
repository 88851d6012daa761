// What a launcher tells a process through its environment: pacer launch, torchrun, or a scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace pacer::parallel {

struct LaunchEnvironment {
  int64_t rank = 0, world = 1;
  int64_t local_rank = 0, local_world = 1;  // of this machine
  std::string master_address{};             // where the store listens; empty with a file store or one process
  uint16_t master_port = 0;
  bool launcher_hosts_store = false;  // else rank 0 does
  std::string store_file{};           // a file that all ranks reach, in place of a server; PACER_STORE_FILE
  std::string attempt = "0";          // how often the launcher started the ranks again

  bool launched() const { return world > 1 || !store_file.empty() || !master_address.empty(); }
};

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// The environment of this process.
std::optional<std::string> environment_variable(const std::string& name);

// RANK and WORLD_SIZE (both or neither: neither means one process), LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT (needed for more than one rank unless PACER_STORE_FILE names a file), TORCHELASTIC_USE_AGENT_STORE,
// TORCHELASTIC_RESTART_COUNT. Throws Error{usage} that names what is missing, contradicts itself or is no number.
LaunchEnvironment read_launch_environment(const EnvironmentLookup& lookup = environment_variable);

// For torchrun and pacer launch: when $TORCHELASTIC_ERROR_FILE names a file, says there why this rank failed, in the
// form that torchrun prints. Never throws: it is called on the way out.
void write_error_file(const std::string& message, int exit_code) noexcept;

}  // namespace pacer::parallel
