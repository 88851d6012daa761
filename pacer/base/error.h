// Errors that a person can act on: what was found, what was expected, what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace pacer {

// The kind decides the exit code of the program and nothing else; callers catch Error, not a kind.
enum class ErrorKind { usage = 2, data = 3, format = 4, device = 5, communication = 6, resources = 7, bug = 70 };

inline const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::data:
      return "data";
    case ErrorKind::format:
      return "format";
    case ErrorKind::device:
      return "device";
    case ErrorKind::communication:
      return "communication";
    case ErrorKind::resources:
      return "resources";
    case ErrorKind::bug:
      return "bug";
  }
  return "unknown";
}

class Error : public std::runtime_error {
 public:
  // what: the place (file, line, JSON path), what was found and what is allowed. hint: what to do, may be empty.
  Error(ErrorKind kind, const std::string& what, std::string hint = {})
      : std::runtime_error(what), kind_(kind), hint_(std::move(hint)) {}

  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }
  const std::string& hint() const { return hint_; }

 private:
  ErrorKind kind_;
  std::string hint_;
};

}  // namespace pacer
