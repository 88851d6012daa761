// Finds and opens the libraries of back ends. An absent plugin and a broken one are different things.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pacer/device/plugin.h"

namespace pacer::device {

// Where libraries are looked for, in order: $PACER_PLUGIN_DIR (alone, when set), then lib/pacer/plugins beside the
// folder of the running program.
std::vector<std::filesystem::path> plugin_folders();

// Names NAME of all files libpacer_NAME.so in these folders, sorted, each once.
std::vector<std::string> plugin_names();

// Opens libpacer_NAME.so; null when no folder has it. Opening a library again gives the same plugin. Throws
// Error{device} with the library's path for one that is there and cannot be used: the dynamic loader's message, a
// missing entry function, or another version of the interface.
const Plugin* open_plugin(const std::string& name);

// Calls plugin.load() the first time and keeps its answer; later calls return it. Throws Error{device} that names the
// back end and carries the vendor's message when load() throws, now and at every later call.
const Loaded& load_plugin(const Plugin& plugin);

}  // namespace pacer::device
