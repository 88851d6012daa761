// How many devices the vendor's runtime leaves of a machine's, by its own reading of ASCEND_RT_VISIBLE_DEVICES.
#pragma once

namespace pacer::simnpu {

// Numbers that ascend, separated by commas. The list ends at the first character that is neither digit nor comma and at
// a number that the machine does not have; one that is not above its predecessor voids it. Unset: all. Empty: none.
int visible_devices(int of_the_machine);

}  // namespace pacer::simnpu
