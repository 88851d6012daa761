#include "pacer/parallel/launch_environment.h"

#include <charconv>
#include <cstdlib>
#include <ctime>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/base/logging.h"

namespace pacer::parallel {
namespace {

constexpr const char* kHint =
    "a launcher sets RANK and WORLD_SIZE together with MASTER_ADDR and MASTER_PORT: 'pacer launch -n 2 -- COMMAND', "
    "'torchrun --no-python', or a scheduler";

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::usage, "launcher: " + what, kHint); }

std::optional<int64_t> number(const EnvironmentLookup& lookup, const std::string& name, int64_t least, int64_t most) {
  const auto text = lookup(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failure != std::errc() || end != text->data() + text->size() || value < least || value > most) {
    refuse(name + " is '" + *text + "', allowed is " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

LaunchEnvironment read_launch_environment(const EnvironmentLookup& lookup) {
  constexpr int64_t kMostRanks = 1 << 20;
  const auto rank = number(lookup, "RANK", 0, kMostRanks), world = number(lookup, "WORLD_SIZE", 1, kMostRanks);
  const auto local_rank = number(lookup, "LOCAL_RANK", 0, kMostRanks);
  const auto local_world = number(lookup, "LOCAL_WORLD_SIZE", 1, kMostRanks);
  if (rank.has_value() != world.has_value()) {
    refuse(rank ? "RANK is set and WORLD_SIZE is not" : "WORLD_SIZE is set and RANK is not");
  }
  if (!rank && (local_rank || local_world)) {
    refuse(std::string(local_rank ? "LOCAL_RANK" : "LOCAL_WORLD_SIZE") + " is set and RANK is not");
  }
  LaunchEnvironment environment;
  if (!rank) return environment;
  if (*rank >= *world) {
    refuse("RANK is " + std::to_string(*rank) + " of WORLD_SIZE " + std::to_string(*world) + "; ranks count from 0");
  }
  environment.rank = *rank;
  environment.world = *world;
  environment.local_rank = local_rank.value_or(0);
  environment.local_world = local_world.value_or(*world);  // nobody speaks of other machines
  if (environment.local_rank >= environment.local_world && local_world) {
    refuse("LOCAL_RANK is " + std::to_string(*local_rank) + " of LOCAL_WORLD_SIZE " + std::to_string(*local_world));
  }
  environment.attempt = lookup("TORCHELASTIC_RESTART_COUNT").value_or("0");
  environment.store_file = lookup("PACER_STORE_FILE").value_or("");
  if (!environment.store_file.empty()) return environment;
  environment.master_address = lookup("MASTER_ADDR").value_or("");
  const auto port = number(lookup, "MASTER_PORT", 1, 65535);
  if (environment.master_address.empty() != !port.has_value()) {
    refuse(port ? "MASTER_PORT is set and MASTER_ADDR is not" : "MASTER_ADDR is set and MASTER_PORT is not");
  }
  if (!port && environment.world > 1) {
    refuse("WORLD_SIZE is " + std::to_string(environment.world) + " and MASTER_ADDR and MASTER_PORT are not set");
  }
  environment.master_port = static_cast<uint16_t>(port.value_or(0));
  environment.launcher_hosts_store = lookup("TORCHELASTIC_USE_AGENT_STORE").value_or("False") == "True";
  return environment;
}

void write_error_file(const std::string& message, int exit_code) noexcept {
  try {
    const auto path = environment_variable("TORCHELASTIC_ERROR_FILE");
    if (!path || path->empty()) return;
    const OrderedJson value = {{"message",
                                {{"message", message},
                                 {"errorCode", exit_code},
                                 {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
    write_file(*path, value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  } catch (const std::exception& failure) {
    log_warning(std::string("the launcher's error file could not be written: ") + failure.what());
  }
}

}  // namespace pacer::parallel
