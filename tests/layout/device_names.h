// Names of device kinds and vendors, which only the room of devices and the plugins may know.
#pragma once

#include <string>
#include <vector>

namespace pacer::layout {

// One sentence per line of `text` that names a device kind, a vendor's variable or library, or a vendor's operator.
// Comments count as well: what a room explains by a vendor's name it depends on.
std::vector<std::string> device_names(const std::string& file, const std::string& text);

}  // namespace pacer::layout
