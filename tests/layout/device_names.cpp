#include "tests/layout/device_names.h"

#include <regex>
#include <sstream>

namespace pacer::layout {

std::vector<std::string> device_names(const std::string& file, const std::string& text) {
  // Kinds and what LibTorch calls them; vendors' libraries and variables; vendors' operators.
  static const std::regex names(
      R"(\b(cuda|simnpu|npu|xpu|mps|kCUDA|kCPU|kPrivateUse1|PrivateUse1|is_cpu|is_cuda|is_privateuseone|DeviceType)\b)"
      R"(|\b(nccl|hccl|NCCL|HCCL|CUDA|NPU|Ascend|NVIDIA|CANN)\b|\b(CUDA|ASCEND|NCCL|HCCL|NPU|SIMNPU|PYTORCH_NPU)_)"
      R"(|npu::|torch_npu|\.cpu\(\)\.|"cpu(:\d+)?"|"gpu")");
  // CPU time is not a device: what the budget of a recipe counts.
  static const std::regex allowed(R"(budget_clock|\{"wall", "cpu"\}|watch\.cpu\(\))");
  std::vector<std::string> found;
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, names) || std::regex_search(line, allowed)) continue;
    found.push_back(file + ":" + std::to_string(number) + " names " + match.str() + ": " + line);
  }
  return found;
}

}  // namespace pacer::layout
