// object.name, object[key], object[a:b] and calls, under the rules of Jinja's immutable sandbox.
#pragma once

#include <optional>
#include <string>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

// object.name: first a method or attribute, then an item. Undefined when there is neither, or when the sandbox hides
// it (names that start with __, methods that change the object).
Value attribute(Context& context, const Value& object, const std::string& name);
// The same for object|attr("name"): no fall-back to items.
Value attribute_only(Context& context, const Value& object, const std::string& name);
// object[key]: first an item, then an attribute.
Value item(Context& context, const Value& object, const Value& key);
// object[start:stop:step]; absent bounds are none. Unlike a single item, a slice of what cannot be cut is an error.
Value slice(Context& context, const Value& object, const Value& start, const Value& stop, const Value& step);
// Throws Failure{type} when the value cannot be called.
Value call(Context& context, const Value& callee, Arguments arguments);
// The path of map(attribute="a.b.0"): items first, integers as indices. A fallback that is not none takes the place of
// every undefined value on the way.
Value item_path(Context& context, Value object, const Value& path, const Value& fallback = Value());

// Methods of strings, dicts, lists and tuples by name; empty when there is none.
using Method = Value (*)(Context& context, const Value& self, Arguments arguments);
Method find_string_method(const std::string& name);
Method find_container_method(Kind kind, const std::string& name);
Method find_number_method(Kind kind, const std::string& name);

}  // namespace pacer::text::jinja
