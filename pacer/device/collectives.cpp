#include "pacer/device/collectives.h"

#include <exception>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "pacer/base/error.h"
#include "pacer/device/plugin.h"
#include "pacer/device/plugin_loader.h"

namespace pacer::device {
namespace {

// The plugin that makes the communicators: the device's own, or the one that bears their name.
const Plugin* maker(const Runtime& runtime) {
  const Plugin* plugin = runtime.plugin();
  if (plugin == nullptr || plugin->make_backend != nullptr || plugin->collectives == nullptr) return plugin;
  return open_plugin(plugin->collectives);
}

}  // namespace

std::string collectives_name(const Runtime& runtime) {
  const Plugin* plugin = maker(runtime);
  return plugin == nullptr || plugin->make_backend == nullptr ? "" : runtime.plugin()->collectives;
}

c10::intrusive_ptr<c10d::Backend> make_collectives(const Runtime& runtime, const c10::intrusive_ptr<c10d::Store>& store,
                                                   int rank, int size, std::chrono::milliseconds timeout) {
  const Plugin* plugin = maker(runtime);
  if (plugin == nullptr || plugin->make_backend == nullptr) return {};
  runtime.bind_thread();
  try {
    return plugin->make_backend(store, rank, size, timeout);
  } catch (const std::exception& failure) {
    const std::string what = failure.what();
    throw Error(ErrorKind::communication,
                "rank " + std::to_string(rank) + " of " + std::to_string(size) + " on " + runtime.name() +
                    ": no communicator: " + what.substr(0, what.find('\n')),
                plugin->advice == nullptr ? "" : plugin->advice(what));
  }
}

}  // namespace pacer::device
