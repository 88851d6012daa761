#include "pacer/device/back_ends.h"

#include <atomic>
#include <cstdlib>
#include <optional>

#include "pacer/base/error.h"
#include "pacer/device/names.h"
#include "pacer/device/plugin_loader.h"
#include "pacer/device/visible_devices.h"

namespace pacer::device {
namespace {

std::atomic<const Plugin*>& foreign() {
  static std::atomic<const Plugin*> plugin = nullptr;
  return plugin;
}

std::optional<std::string> variable(const std::string& name) {
  const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

const Plugin* loaded_foreign_back_end() { return foreign(); }

const Plugin* find_back_end(const std::string& product) {
  if (product == cuda_back_end().product) return &cuda_back_end();
  const Plugin* plugin = open_plugin(product);
  return plugin != nullptr && plugin->product != nullptr ? plugin : nullptr;
}

Availability examine(const std::string& product) {
  const Plugin* plugin = find_back_end(product);
  if (plugin == nullptr) return {nullptr, {}, "no plugin libpacer_" + product + ".so"};
  if (const Plugin* other = loaded_foreign_back_end(); other != nullptr && other != plugin) {
    throw Error(ErrorKind::device,
                "device \"" + product + "\" was asked for in a process that runs on \"" + other->product +
                    "\" already: LibTorch has room for one of them",
                "use one device per process");
  }
  const Loaded& loaded = load_plugin(*plugin);
  if (!loaded.present) return {plugin, {}, loaded.note};
  if (plugin->torch_type == c10::DeviceType::PrivateUse1) foreign() = plugin;
  Availability found{plugin, {}, loaded.note};
  const Visibility visibility = plugin->visibility == nullptr ? Visibility() : plugin->visibility();
  const int count = plugin->device_count();
  const auto value = variable(visibility.variable);
  found.devices = torch_indices(visibility, value, count);
  if (!found.there()) {
    found.note += "; its runtime reports " + std::to_string(count) + " devices";
    if (value) found.note += " and " + visibility.variable + "=\"" + *value + "\" leaves none";
  } else if (value && visibility.rule != VisibilityRule::none &&
             static_cast<int>(found.devices.size()) < listed_devices(*value)) {
    throw Error(ErrorKind::device,
                visibility.variable + "=\"" + *value + "\" names " + std::to_string(listed_devices(*value)) +
                    " devices, and " + std::to_string(found.devices.size()) + " of them are there",
                "the vendor's runtime ends the list at the first that is not; 'pacer doctor' shows those of this "
                "machine");
  }
  return found;
}

}  // namespace pacer::device
