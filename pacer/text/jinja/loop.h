// The `loop` variable and macros: objects that refer back to the interpreter.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pacer/text/jinja/interpreter.h"

namespace pacer::text::jinja {

class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(Interpreter& interpreter, const For& node, Scope* defined_in, std::vector<Value> items, int depth)
      : interpreter_(interpreter), node_(node), defined_in_(defined_in), items_(std::move(items)), depth_(depth) {}

  std::string type_name() const override { return "jinja2.runtime.LoopContext"; }
  std::string repr(Context& context) const override;
  std::optional<Value> attribute(Context& context, const std::string& name) override;
  bool callable() const override { return true; }
  Value call(Context& context, Arguments arguments) override;  // of a loop marked recursive
  std::optional<int64_t> length() const override { return static_cast<int64_t>(items_.size()); }

  const std::vector<Value>& items() const { return items_; }
  void move_to(size_t index) { index_ = index; }
  void finish();  // nothing may keep the loop alive through its own elements

 private:
  bool changed(std::vector<Value> values);

  Interpreter& interpreter_;
  const For& node_;
  Scope* const defined_in_;
  std::vector<Value> items_;
  const int depth_;
  size_t index_ = 0;
  std::optional<std::vector<Value>> last_changed_;
};

class Macro final : public Object {
 public:
  Macro(Interpreter& interpreter, std::shared_ptr<const MacroDefinition> macro, Scope* defined_in)
      : interpreter_(interpreter), macro_(std::move(macro)), defined_in_(defined_in) {}

  std::string type_name() const override { return "jinja2.runtime.Macro"; }
  std::string repr(Context&) const override { return "<Macro '" + macro_->name + "'>"; }
  std::optional<Value> attribute(Context& context, const std::string& name) override;
  bool callable() const override { return true; }
  Value call(Context&, Arguments arguments) override {
    return interpreter_.call_macro(*macro_, defined_in_, std::move(arguments));
  }

 private:
  Interpreter& interpreter_;
  const std::shared_ptr<const MacroDefinition> macro_;
  Scope* const defined_in_;
};

}  // namespace pacer::text::jinja
