// The version of Pacer, as reports, checkpoints and --version say it.
#pragma once

namespace pacer {

const char* version();   // "0.1.0"
const char* compiler();  // "g++ 12.2.0"

}  // namespace pacer
