// What one rendering may use up, and where it is.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <vector>

#include "pacer/text/chat_template.h"
#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

struct Place {
  int line = 1;
  int column = 1;  // in code points
};

class Namespace;

class Context {
 public:
  Context(const RenderLimits& limits, const std::optional<std::tm>& clock) : limits_(limits), clock_(clock) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Every node that is run and every element that a filter looks at. Throws Failure{limit}.
  void step(int64_t count = 1);
  // Memory for a new string or list, counted over the whole rendering. Throws Failure{limit}.
  void charge(uint64_t bytes);
  const RenderLimits& limits() const { return limits_; }

  // Nesting of calls and expressions: the C++ stack is finite.
  class Level {
   public:
    explicit Level(Context& context);
    ~Level() { --context_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Context& context_;
  };

  std::tm now() const;
  // Namespaces can hold themselves; the context empties them at the end, so that nothing leaks.
  std::shared_ptr<Namespace> make_namespace();

  Place place;  // of the node that runs; errors name it

 private:
  const RenderLimits limits_;
  const std::optional<std::tm> clock_;
  int64_t steps_ = 0;
  uint64_t bytes_ = 0;
  int level_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace pacer::text::jinja
