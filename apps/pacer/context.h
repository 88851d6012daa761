// What every subcommand shares: the common flags and the two ways to answer, for a person and for a program.
#pragma once

#include <initializer_list>
#include <string>

#include <CLI/CLI.hpp>

#include "pacer/base/json.h"

namespace pacer::cli {

// One per process; lives longer than every callback that holds a reference to it.
struct Context {
  bool json = false;  // --json: stdout carries one JSON value and nothing else; progress and notes stay on stderr
  bool quiet = false;
  bool verbose = false;

  // Gives a command --json, --quiet, --verbose and its examples. Call it last, so that they stand below its own
  // options.
  void add_common(CLI::App& command, std::initializer_list<std::string> examples);

  // Sets the level of the log. Runs after parsing and before the callback of the command.
  void apply() const;

  // One JSON value and a line end on stdout. Throws Error{resources} when stdout cannot take it.
  void print_json(const OrderedJson& value) const;
  // Text for a person on stdout, as it is. Throws as print_json.
  void print(const std::string& text) const;
};

}  // namespace pacer::cli
