#include "plugins/npu/advice.h"

#include <utility>

namespace pacer::npu {

std::string advice(const std::string& error_message) {
  // Codes of CANN's rt_error_codes.h, classes of HCCL's messages, and torch_npu's own sentences.
  static const std::pair<const char*, const char*> known[] = {
      {"107001", "no such device: compare ASCEND_RT_VISIBLE_DEVICES with npu-smi info"},
      {"107002", "no device is bound to this thread: Runtime::bind_thread() before the first call"},
      {"207001", "device memory is used up: lower data.sequences or data.anchors, or loss.tile_mb"},
      {"207007", "events are used up: synchronise more often"},
      {"507014", "a kernel did not end in time: lower the size of the work, or raise ACL_DEVICE_SYNC_TIMEOUT"},
      {"507015", "a kernel failed: run again with ASCEND_LAUNCH_BLOCKING=1 to see which"},
      {"507035", "a kernel failed: run again with ASCEND_LAUNCH_BLOCKING=1 to see which"},
      {"507901", "the connection to the device broke: npu-smi info, then the driver's log"},
      {"EI0002", "ranks waited for each other in a collective in vain: look for the rank that failed first"},
      {"EI0006", "ranks could not connect: MASTER_ADDR, the network between them, HCCL_CONNECT_TIMEOUT"},
      {"EJ0001", "HCCL did not start: device busy or in use by another process (npu-smi info)"},
      {"Unsupported data type", "the collective does not take this dtype; see the table of pacer doctor"},
      {"coreDim", "an operator was launched on a tensor without elements"},
      {"out of memory", "device memory is used up: lower data.sequences or data.anchors, or loss.tile_mb"},
  };
  for (const auto& [code, meaning] : known) {
    if (error_message.find(code) != std::string::npos) return meaning;
  }
  return {};
}

}  // namespace pacer::npu
