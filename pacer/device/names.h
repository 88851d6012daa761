// How users name devices, and how LibTorch does: the one place that knows both.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pacer::device {

// A device that a user asks for. "simnpu:1" is product "simnpu", index 1: LibTorch calls that device "npu:1", because
// it knows one name for all foreign back ends; everything that a person reads says the product.
struct DeviceName {
  std::string product;
  std::optional<int> index;  // among the visible devices; none: chosen by the local rank
};

inline constexpr const char* kAuto = "auto";
inline constexpr const char* kHost = "cpu";

// "auto" and "cpu" take no index. Throws Error{usage} for another spelling; the product itself may be unknown.
DeviceName parse_device_name(const std::string& spec);

// What `auto` looks for, in this order, before it takes the host. A simulated device is never among them.
const std::vector<std::string>& preferred_products();

// Products that Pacer knows even where their library is not installed.
bool is_known_product(const std::string& product);

// "auto, cpu, cuda[:i], ..." for messages and help texts: the known ones and every plugin that brings a device.
std::string allowed_devices();

}  // namespace pacer::device
