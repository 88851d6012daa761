#include "pacer/base/version.h"

namespace pacer {

const char* version() { return PACER_VERSION; }

const char* compiler() { return PACER_COMPILER; }

}  // namespace pacer
