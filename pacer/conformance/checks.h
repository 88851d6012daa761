// The checks that every device must pass.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/device/runtime.h"

namespace pacer::conformance {

struct Scene {
  device::Runtime& runtime;       // the device under test
  device::Runtime& host;          // what it is compared with
  std::filesystem::path scratch;  // an empty folder for this check
  int seeds = 3;                  // delays of a simulated device to try
  int first_seed = 1;
};

// What a check throws: what was found and what was expected.
class Failed : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Check {
  std::string name;   // "training.twenty_steps"
  std::string shows;  // one line
  void (*run)(Scene& scene);
  // Why the check means nothing on this device; "" when it applies. Null: it applies everywhere.
  std::string (*not_here)(const device::Runtime& runtime) = nullptr;
};

std::vector<Check> runtime_checks();   // streams, memory, generators, prefetching
std::vector<Check> operator_checks();  // each operation of pacer/nn against the host, with gradients
std::vector<Check> model_checks();     // forward passes, the decoding promise, losses of every draft, same texts
std::vector<Check> training_checks();  // runs, checkpoints across devices, hazards, memory that ends
std::vector<Check> all_checks();       // in this order

// Throws Failed with `what` unless `holds`.
void require(bool holds, const std::string& what);
// |a - b| / |b| (Euclidean norms, b on the host) at most `bound`; the same shape; finite.
void require_close(const std::string& what, const at::Tensor& a, const at::Tensor& b, double bound);
// The same bits.
void require_equal(const std::string& what, const at::Tensor& a, const at::Tensor& b);

}  // namespace pacer::conformance
