#include "pacer/text/jinja/interpreter.h"

#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/globals.h"
#include "pacer/text/jinja/loop.h"
#include "pacer/text/jinja/objects.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {

// Output goes to a string of its own until text() is called or the guard ends.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter) : interpreter_(interpreter), previous_(interpreter.out_) {
    interpreter_.out_ = &text_;
  }
  ~Capture() { interpreter_.out_ = previous_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  std::string text() {
    interpreter_.out_ = previous_;
    return std::move(text_);
  }

 private:
  Interpreter& interpreter_;
  std::string* const previous_;
  std::string text_;
};

Interpreter::ScopeGuard::ScopeGuard(Interpreter& interpreter, Scope* parent)
    : interpreter_(interpreter), previous_(interpreter.scope_) {
  if (interpreter_.unused_scopes_.empty()) {
    interpreter_.context_.charge(sizeof(Scope));
    interpreter_.scopes_.emplace_back();
    interpreter_.unused_scopes_.push_back(&interpreter_.scopes_.back());
  }
  Scope* scope = interpreter_.unused_scopes_.back();
  interpreter_.unused_scopes_.pop_back();
  scope->parent = parent;
  interpreter_.scope_ = scope;
}

Interpreter::ScopeGuard::~ScopeGuard() {
  Scope* scope = interpreter_.scope_;
  if (!scope->captured) {
    scope->values.clear();
    interpreter_.unused_scopes_.push_back(scope);
  }
  interpreter_.scope_ = previous_;
}

Interpreter::Interpreter(const Template& tree, Context& context)
    : tree_(tree), context_(context), root_(tree.names.size()) {
  for (const auto& [name, value] : globals()) define(name, value);
  if (const auto found = tree_.symbols.find("loop"); found != tree_.symbols.end()) loop_symbol_ = found->second;
}

void Interpreter::define(const std::string& name, Value value) {
  const auto found = tree_.symbols.find(name);
  if (found != tree_.symbols.end()) root_[static_cast<size_t>(found->second)] = std::move(value);
}

Rendered Interpreter::run() {
  run(tree_.body);
  return std::move(result_);
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const Statement& statement : body) {
    const Flow flow = run(statement);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  const Context::Level level(context_);
  context_.step();
  context_.place = statement.place;
  return std::visit([&](const auto& node) { return run(node); }, statement.node);
}

Interpreter::Flow Interpreter::run(const Literal& node) {
  write(node.text);
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Break&) { return Flow::leave; }

Interpreter::Flow Interpreter::run(const Continue&) { return Flow::again; }

Interpreter::Flow Interpreter::run(const For& node) { return run_for(node, evaluate(*node.iterable), 0); }

Interpreter::Flow Interpreter::run(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::next;
}

// The text of a block that is not written at once. It may hold a {% break %}; then the text is lost.
std::optional<std::string> Interpreter::captured(const Body& body, Flow& flow) {
  Capture capture(*this);
  const ScopeGuard scope(*this, scope_);
  flow = run(body);
  if (flow != Flow::next) return std::nullopt;
  return capture.text();
}

Interpreter::Flow Interpreter::run(const SetBlock& node) {
  Flow flow = Flow::next;
  auto text = captured(node.body, flow);
  if (text) assign(node.target, node.filter ? filtered_text(*node.filter, *std::move(text)) : Value(*std::move(text)));
  return flow;
}

Interpreter::Flow Interpreter::run(const FilterBlock& node) {
  Flow flow = Flow::next;
  auto text = captured(node.body, flow);
  if (text) write(to_text(context_, filtered_text(*node.filter, *std::move(text))));
  return flow;
}

Interpreter::Flow Interpreter::run(const With& node) {
  std::vector<Value> values;
  for (const auto& assignment : node.assignments) values.push_back(evaluate(*assignment.second));
  const ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(node.assignments[i].first, std::move(values[i]));
  return run(node.body);
}

Interpreter::Flow Interpreter::run(const MacroStatement& node) {
  set(node.symbol, make_macro(node.macro));
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const CallBlock& node) {
  Arguments extra;
  extra.named.emplace_back("caller", make_macro(node.caller));
  write(to_text(context_, evaluate_call(std::get<Call>(node.call->node), node.call->place, std::move(extra))));
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Generation& node) {
  const bool placed = out_ == &result_.text;
  const int64_t begin = placed ? code_points_so_far() : 0;
  {
    const ScopeGuard scope(*this, scope_);
    run(node.body);
  }
  if (placed) {
    result_.generation.emplace_back(begin, code_points_so_far());
  } else {
    result_.generation_unplaced = true;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Output& node) {
  for (const ExpressionPtr& expression : node.values) {
    const Value value = evaluate(*expression);
    context_.place = expression->place;
    if (value.is_string()) {
      write(value.text());
    } else {
      write(to_text(context_, value));
    }
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (truth(evaluate(*condition))) return run(body);
  }
  return run(node.otherwise);
}

void Interpreter::write(std::string_view text) {
  context_.charge(text.size());
  *out_ += text;
}

// What leaves the loop's {% else %} leaves the loop around it.
Interpreter::Flow Interpreter::run_for(const For& node, const Value& iterable, int depth) {
  context_.place = node.iterable->place;
  std::vector<Value> items = iterate(iterable);
  if (node.condition) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const ScopeGuard scope(*this, scope_);
      assign(node.target, item);
      if (truth(evaluate(*node.condition))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    const ScopeGuard scope(*this, scope_);
    return run(node.otherwise);
  }
  if (node.recursive) {
    for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  }
  const auto loop = std::make_shared<Loop>(*this, node, scope_, std::move(items), depth);
  Flow flow = Flow::next;
  for (size_t i = 0; i < loop->items().size() && flow != Flow::leave; ++i) {
    context_.step();
    loop->move_to(i);
    const ScopeGuard scope(*this, scope_);
    if (loop_symbol_) set(*loop_symbol_, Value(std::shared_ptr<Object>(loop)));
    assign(node.target, loop->items()[i]);
    flow = run(node.body);
  }
  loop->finish();
  return Flow::next;
}

Value Interpreter::call_loop(const For& node, Scope* defined_in, const Value& iterable, int depth) {
  Capture capture(*this);
  const ScopeGuard scope(*this, defined_in);
  run_for(node, iterable, depth);
  return Value(capture.text());
}

Value Interpreter::make_macro(const std::shared_ptr<const MacroDefinition>& macro) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(*this, macro, scope_)));
}

int64_t Interpreter::code_points_so_far() {
  counted_ += code_points(std::string_view(result_.text).substr(counted_bytes_));
  counted_bytes_ = result_.text.size();
  return counted_;
}

Value Interpreter::call_macro(const MacroDefinition& macro, Scope* defined_in, Arguments arguments) {
  auto& positional = arguments.positional;
  auto& named = arguments.named;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    for (auto entry = named.begin(); entry != named.end(); ++entry) {
      if (entry->first != name) continue;
      Value value = std::move(entry->second);
      named.erase(entry);
      return value;
    }
    return std::nullopt;
  };
  const ScopeGuard scope(*this, defined_in);
  bool explicit_caller = false;
  const size_t count = macro.parameters.size(), required = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const auto& [name, symbol] = macro.parameters[i];
    explicit_caller = explicit_caller || name == "caller";
    std::optional<Value> value;
    if (i < positional.size()) {
      value = std::move(positional[i]);
    } else {
      value = take(name);
    }
    if (!value && i >= required) value = evaluate(*macro.defaults[i - required]);
    if (!value) value = Value::undefined("parameter '" + name + "' was not provided");
    set(symbol, *std::move(value));
  }
  const auto define_special = [&](const char* name, Value value) {
    const auto found = tree_.symbols.find(name);
    if (found != tree_.symbols.end()) set(found->second, std::move(value));
  };
  if (macro.uses_caller && !explicit_caller) {
    define_special("caller", take("caller").value_or(Value::undefined("No caller defined")));
  }
  if (macro.uses_kwargs) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : named) rest.emplace_back(Value(name), std::move(value));
    define_special("kwargs", Value::dict(std::move(rest)));
  } else if (!named.empty()) {
    type_error("macro '" + macro.name + "' takes no keyword argument '" + named.front().first + "'");
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < positional.size(); ++i) rest.push_back(std::move(positional[i]));
    define_special("varargs", Value::tuple(std::move(rest)));
  } else if (positional.size() > count) {
    type_error("macro '" + macro.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  }
  Capture capture(*this);
  run(macro.body);
  return Value(capture.text());
}

void Interpreter::set(Symbol symbol, Value value) {
  if (scope_ == nullptr) {
    root_[static_cast<size_t>(symbol)] = std::move(value);
    return;
  }
  for (auto& [known, old] : scope_->values) {
    if (known == symbol) {
      old = std::move(value);
      return;
    }
  }
  scope_->values.emplace_back(symbol, std::move(value));
}

Value Interpreter::get(Symbol symbol) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->values) {
      if (known == symbol) return value;
    }
  }
  const auto& value = root_[static_cast<size_t>(symbol)];
  if (value) return *value;
  return Value::undefined("'" + tree_.names[static_cast<size_t>(symbol)] + "' is undefined");
}

void Interpreter::assign(const Target& target, Value value) {
  switch (target.kind) {
    case Target::Kind::name:
      set(target.symbol, std::move(value));
      return;
    case Target::Kind::attribute: {
      context_.place = target.place;
      const Value object = get(target.symbol);
      auto* space = object.object_as<Namespace>();
      if (space == nullptr) type_error("cannot assign attribute on non-namespace object");
      context_.step(static_cast<int64_t>(space->values.size()));  // it is searched
      space->set(target.attribute, std::move(value));
      return;
    }
    case Target::Kind::tuple: {
      context_.place = target.place;
      std::vector<Value> items = iterate(value);
      if (items.size() < target.items.size()) {
        value_error("not enough values to unpack (expected " + std::to_string(target.items.size()) + ", got " +
                    std::to_string(items.size()) + ")");
      }
      if (items.size() > target.items.size()) {
        value_error("too many values to unpack (expected " + std::to_string(target.items.size()) + ")");
      }
      for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], std::move(items[i]));
      return;
    }
  }
}

}  // namespace pacer::text::jinja
