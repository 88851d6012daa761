#include "plugins/simnpu/rules/visible_devices.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace pacer::simnpu {

int visible_devices(int of_the_machine) {
  const char* text = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (!text) return of_the_machine;
  std::string list(text);
  list.resize(std::min(list.size(), list.find_first_not_of("0123456789,")));
  int count = 0, previous = -1;
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.size(), list.find(',', at));
    const std::string digits = list.substr(at, comma - at);
    // More digits than a device number has: none that the machine has.
    const int number = digits.empty() || digits.size() > 6 ? of_the_machine : std::stoi(digits);
    if (number >= of_the_machine) break;
    if (number <= previous) return 0;
    previous = number;
    ++count;
    at = comma + 1;
  }
  return count;
}

}  // namespace pacer::simnpu
