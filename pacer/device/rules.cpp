#include "pacer/device/rules.h"

#include "pacer/device/names.h"
#include "pacer/device/plugin_loader.h"

namespace pacer::device {

void turn_on_refusals(const std::string& device) {
  const Plugin* plugin = open_plugin(parse_device_name(device).product);
  if (plugin == nullptr || plugin->switches == nullptr || plugin->set_switch == nullptr) return;
  for (const Switch& row : plugin->switches()) {
    if (row.name.starts_with("refuse_") && row.value == 0) plugin->set_switch(row.name, 1);
  }
}

std::vector<std::string> switches_on(const Plugin* plugin) {
  std::vector<std::string> names;
  if (plugin == nullptr || plugin->switches == nullptr) return names;
  for (const Switch& row : plugin->switches()) {
    if (row.flag && row.value == 1) names.push_back(row.name);
  }
  return names;
}

}  // namespace pacer::device
