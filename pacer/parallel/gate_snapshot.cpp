#include "pacer/parallel/gate_snapshot.h"

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>

#include <ATen/ops/isnan.h>

#include "pacer/device/device_memory.h"

namespace pacer::parallel {
namespace {

constexpr const char* kNotANumber = " with NaN";

// Each step is a bijection of the lane for a fixed word and of the word for a fixed lane.
void mix(uint64_t& lane, uint64_t word) { lane = std::rotl((lane ^ word) * 0x9e3779b97f4a7c15ULL, 29); }

std::string bits_of(const at::Tensor& tensor) {
  uint64_t lanes[4] = {1, 2, 3, 4};
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const size_t size = tensor.nbytes();
  size_t at = 0;
  for (size_t lane = 0; at < size; lane = (lane + 1) % 4, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min<size_t>(8, size - at));
    mix(lanes[lane], word);
  }
  char text[80];
  std::snprintf(text, sizeof text, "%016llx%016llx%016llx%016llx", static_cast<unsigned long long>(lanes[0]),
                static_cast<unsigned long long>(lanes[1]), static_cast<unsigned long long>(lanes[2]),
                static_cast<unsigned long long>(lanes[3]));
  return text;
}

}  // namespace

std::string print_of(const at::Tensor& tensor) {
  const at::Tensor plain = device::to_host(tensor.detach()).contiguous();
  std::string text = c10::str(plain.scalar_type(), " ", plain.sizes(), " ", bits_of(plain));
  if (at::isFloatingType(plain.scalar_type()) && at::isnan(plain).any().item<bool>()) text += kNotANumber;
  return text;
}

Snapshot snapshot_of(const std::map<std::string, at::Tensor>& tensors) {
  Snapshot snapshot;
  for (const auto& [name, tensor] : tensors) snapshot[name] = print_of(tensor);
  return snapshot;
}

std::string snapshot_difference(const Snapshot& expected, const Snapshot& found) {
  std::set<std::string> names;
  for (const auto& [name, print] : expected) names.insert(name);
  for (const auto& [name, print] : found) names.insert(name);
  const auto said = [](const Snapshot& snapshot, const std::string& name) {
    const auto place = snapshot.find(name);
    return place == snapshot.end() ? std::string("nothing") : place->second;
  };
  std::string text;
  size_t count = 0;
  for (const std::string& name : names) {
    const std::string a = said(expected, name), b = said(found, name);
    const bool number = a.find(kNotANumber) == std::string::npos && b.find(kNotANumber) == std::string::npos;
    if (a == b && number) continue;
    if (++count <= 3) text += (text.empty() ? "" : "; ") + name + ": expected " + a + ", found " + b;
  }
  if (count > 3) text += "; and " + std::to_string(count - 3) + " more";
  return text;
}

std::string to_text(const Snapshot& snapshot) {
  std::string text;
  for (const auto& [name, print] : snapshot) text += name + "\t" + print + "\n";
  return text;
}

Snapshot parse_snapshot(const std::string& text) {
  Snapshot snapshot;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = line.find('\t');
    snapshot[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return snapshot;
}

}  // namespace pacer::parallel
