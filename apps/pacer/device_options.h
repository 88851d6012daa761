// The flags of every command that computes: which device, and which of two implementations.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "pacer/device/runtime.h"

namespace pacer::cli {

struct DeviceOptions {
  std::string device = "auto", kernel_impl = "auto", attention_impl = "auto";

  void add_to(CLI::App& command);
  // Chooses the implementations and opens the device.
  device::Runtime open() const;
  void use_kernel_paths() const;
};

}  // namespace pacer::cli
