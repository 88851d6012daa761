#include "pacer/text/jinja/loop.h"

#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/objects.h"

namespace pacer::text::jinja {

std::string Loop::repr(Context&) const {
  return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_.size()) + ">";
}

std::optional<Value> Loop::attribute(Context&, const std::string& name) {
  const auto index = static_cast<int64_t>(index_), size = static_cast<int64_t>(items_.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 >= size;
  if (name == "length") return size;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "depth") return depth_ + 1;
  if (name == "depth0") return depth_;
  if (name == "previtem") {
    return index_ > 0 && index_ <= items_.size() ? items_[index_ - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index_ + 1 < items_.size() ? items_[index_ + 1] : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    return make_function("cycle", [index](Context&, Arguments arguments) {
      if (arguments.positional.empty()) type_error("no items for cycling given");
      return arguments.positional[static_cast<size_t>(index) % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    const std::weak_ptr<Loop> weak = weak_from_this();
    return make_function("changed", [weak](Context&, Arguments arguments) {
      const auto loop = weak.lock();
      return loop != nullptr && loop->changed(std::move(arguments.positional));
    });
  }
  return std::nullopt;
}

bool Loop::changed(std::vector<Value> values) {
  if (last_changed_ && equal(Value::tuple(*last_changed_), Value::tuple(values))) return false;
  last_changed_ = std::move(values);
  return true;
}

Value Loop::call(Context&, Arguments arguments) {
  if (!node_.recursive) {
    type_error("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (arguments.positional.size() != 1 || !arguments.named.empty()) type_error("loop() takes one argument");
  return interpreter_.call_loop(node_, defined_in_, arguments.positional.front(), depth_ + 1);
}

void Loop::finish() {
  items_.clear();
  last_changed_.reset();
}

std::optional<Value> Macro::attribute(Context&, const std::string& name) {
  if (name == "name") return Value(macro_->name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const auto& parameter : macro_->parameters) names.emplace_back(parameter.first);
    return Value::tuple(std::move(names));
  }
  if (name == "catch_kwargs") return macro_->uses_kwargs;
  if (name == "catch_varargs") return macro_->uses_varargs;
  if (name == "caller") return macro_->uses_caller;
  return std::nullopt;
}

}  // namespace pacer::text::jinja
