// How the program ends when something went wrong: `error:` and `hint:` on stderr, a JSON object on stdout when asked
// for.
#pragma once

#include <exception>

#include <CLI/CLI.hpp>

#include "pacer/base/error.h"

namespace pacer::cli {

// Any exception as an Error: memory that could not be had is `resources`, what no one foresaw is `bug`.
Error to_error(std::exception_ptr failure);

// A command line that CLI11 refused, with the nearest name that exists.
Error to_error(const CLI::ParseError& failure, const CLI::App& app);

// Prints the error and returns the exit code. With json, also {"error": {"kind", "message", "hint", "exit_code"}} on
// stdout.
int report(const Error& error, bool json);

}  // namespace pacer::cli
