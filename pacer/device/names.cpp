#include "pacer/device/names.h"

#include <algorithm>
#include <charconv>

#include "pacer/base/error.h"
#include "pacer/device/plugin_loader.h"

namespace pacer::device {
namespace {

const std::vector<std::string>& known_products() {
  static const std::vector<std::string> known = {"cuda", "npu", "simnpu"};
  return known;
}

}  // namespace

DeviceName parse_device_name(const std::string& spec) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::usage, "device \"" + spec + "\" " + why + "; allowed are " + allowed_devices());
  };
  const size_t colon = spec.find(':');
  DeviceName name{spec.substr(0, colon), std::nullopt};
  if (name.product.empty()) refuse("is not known");
  if (colon == std::string::npos) return name;
  if (name.product == kAuto || name.product == kHost) refuse("has an index, and there is only one " + name.product);
  const char *begin = spec.data() + colon + 1, *end = spec.data() + spec.size();
  int index = -1;
  const auto [stop, code] = std::from_chars(begin, end, index);
  if (code != std::errc() || stop != end || index < 0) refuse("has an index that is not a number from 0 on");
  name.index = index;
  return name;
}

const std::vector<std::string>& preferred_products() {
  static const std::vector<std::string> preferred = {"npu", "cuda"};
  return preferred;
}

bool is_known_product(const std::string& product) {
  return std::ranges::find(known_products(), product) != known_products().end();
}

std::string allowed_devices() {
  std::string text = std::string(kAuto) + ", " + kHost;
  std::vector<std::string> all = known_products();
  for (const std::string& name : plugin_names()) {
    // Libraries that bring collectives for another one's device.
    if (name != "hccl" && name != "nccl" && !is_known_product(name)) all.push_back(name);
  }
  for (const std::string& product : all) text += ", " + product + "[:i]";
  return text;
}

}  // namespace pacer::device
