// What goes wrong while a template runs. The interpreter adds the place in the template and makes a pacer::Error of it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace pacer::text::jinja {

// The names that Jinja and Python use, so that a person can look the message up.
enum class FailureType { type, value, undefined, security, zero_division, index, key, overflow, limit, raised };

class Failure : public std::runtime_error {
 public:
  Failure(FailureType type, const std::string& message) : std::runtime_error(message), type_(type) {}
  FailureType type() const { return type_; }

 private:
  FailureType type_;
};

[[noreturn]] inline void type_error(const std::string& message) { throw Failure(FailureType::type, message); }
[[noreturn]] inline void value_error(const std::string& message) { throw Failure(FailureType::value, message); }

}  // namespace pacer::text::jinja
