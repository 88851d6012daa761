// --threads of the commands that decode.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "pacer/device/runtime.h"
#include "pacer/target/target.h"
#include "pacer/text/model_text.h"

namespace pacer::cli {

// "auto", or a number, 0 for as many as the machine has cores.
void add_threads(CLI::App& command, std::string& threads);

// Before the target is loaded: sets a number that was given.
void set_threads(const std::string& threads, device::Runtime& runtime);

// After it is loaded: "auto" measures one thread against all (decode::choose_threads).
void choose_threads(const std::string& threads, const target::Target& target, const text::ModelText& text,
                    device::Runtime& runtime);

}  // namespace pacer::cli
