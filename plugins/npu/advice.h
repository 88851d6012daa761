// What a number in an error of the Ascend runtime means for the user.
#pragma once

#include <string>

namespace pacer::npu {

// "" for a message without a known code.
std::string advice(const std::string& error_message);

}  // namespace pacer::npu
