// Runs a template: scopes, statements, macros, and the spans of {% generation %} blocks.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pacer/text/chat_template.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/syntax.h"

namespace pacer::text::jinja {

// Variables of a loop, a macro or a block. Null stands for the template itself.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> values;
  bool captured = false;  // a macro refers to it, so it lives as long as the interpreter
};

class Loop;
class Macro;

class Interpreter {
 public:
  // Variables that the template never mentions are not needed. Both arguments must outlive the interpreter.
  Interpreter(const Template& tree, Context& context);
  void define(const std::string& name, Value value);
  Rendered run();

  Value call_macro(const MacroDefinition& macro, Scope* defined_in, Arguments arguments);
  Value call_loop(const For& node, Scope* defined_in, const Value& iterable, int depth);

 private:
  enum class Flow { next, leave, again };  // again: {% continue %}

  class ScopeGuard {
   public:
    ScopeGuard(Interpreter& interpreter, Scope* parent);
    ~ScopeGuard();
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Interpreter& interpreter_;
    Scope* const previous_;
  };
  class Capture;

  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run(const Literal& node);
  Flow run(const Output& node);
  Flow run(const If& node);
  Flow run(const For& node);
  Flow run(const Set& node);
  Flow run(const SetBlock& node);
  Flow run(const With& node);
  Flow run(const MacroStatement& node);
  Flow run(const CallBlock& node);
  Flow run(const FilterBlock& node);
  Flow run(const Generation& node);
  Flow run(const Break& node);
  Flow run(const Continue& node);
  Flow run_for(const For& node, const Value& iterable, int depth);
  std::optional<std::string> captured(const Body& body, Flow& flow);
  void write(std::string_view text);

  void assign(const Target& target, Value value);
  void set(Symbol symbol, Value value);
  Value get(Symbol symbol) const;
  Value make_macro(const std::shared_ptr<const MacroDefinition>& macro);

  Value evaluate(const Expression& expression);
  Value evaluate_or_none(const ExpressionPtr& expression) { return expression ? evaluate(*expression) : Value(); }
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  Arguments evaluate_operands(const Operands& operands);
  Value evaluate_call(const Call& node, const Place& place, Arguments extra);
  Value value_of(const Constant& node, const Place& place);
  Value value_of(const Name& node, const Place& place);
  Value value_of(const ListOf& node, const Place& place);
  Value value_of(const TupleOf& node, const Place& place);
  Value value_of(const DictOf& node, const Place& place);
  Value value_of(const Attribute& node, const Place& place);
  Value value_of(const Item& node, const Place& place);
  Value value_of(const Slice& node, const Place& place);
  Value value_of(const Call& node, const Place& place);
  Value value_of(const Filtered& node, const Place& place);
  Value value_of(const Tested& node, const Place& place);
  Value value_of(const Unary& node, const Place& place);
  Value value_of(const Binary& node, const Place& place);
  Value value_of(const Logical& node, const Place& place);
  Value value_of(const Concatenation& node, const Place& place);
  Value value_of(const Compared& node, const Place& place);
  Value value_of(const Conditional& node, const Place& place);
  // The text goes through the filters of a block.
  Value filtered_text(const Expression& filter, std::string text);

  int64_t code_points_so_far();

  const Template& tree_;
  Context& context_;
  std::vector<std::optional<Value>> root_;  // by Symbol
  Scope* scope_ = nullptr;
  std::deque<Scope> scopes_;
  std::vector<Scope*> unused_scopes_;
  std::optional<Symbol> loop_symbol_;
  const std::string* block_text_ = nullptr;  // input of a filter chain without one

  Rendered result_;
  std::string* out_ = &result_.text;
  size_t counted_bytes_ = 0;
  int64_t counted_ = 0;  // code points in them
};

}  // namespace pacer::text::jinja
