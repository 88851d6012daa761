// Methods of dict, list, tuple and numbers that do not change them.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/lookup.h"
#include "pacer/text/jinja/objects.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/repr.h"

namespace pacer::text::jinja {
namespace {

Value view(std::string type, std::vector<Value> values) {
  return Value(std::shared_ptr<Object>(std::make_shared<View>(std::move(type), std::move(values))));
}

Value dict_get(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("get", std::move(arguments), {"key", "default"}, 1);
  require_hashable(parameters.get(0));
  const Value* found = self.entries().find(parameters.get(0));
  return found != nullptr ? *found : parameters.get(1);
}

Value dict_items(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("items", std::move(arguments), {});
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.entries().values) pairs.push_back(Value::tuple({key, value}));
  context.charge(pairs.size() * 4 * sizeof(Value));
  return view("dict_items", std::move(pairs));
}

Value dict_keys(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("keys", std::move(arguments), {});
  return view("dict_keys", iterate(self));
}

Value dict_values(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("values", std::move(arguments), {});
  std::vector<Value> values;
  for (const auto& entry : self.entries().values) values.push_back(entry.second);
  return view("dict_values", std::move(values));
}

Value copy(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("copy", std::move(arguments), {});
  return self;  // nothing can change it
}

Value sequence_count(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("count", std::move(arguments), {"value"}, 1);
  context.step(static_cast<int64_t>(self.items().size()));
  int64_t count = 0;
  for (const Value& value : self.items()) count += equal(value, parameters.get(0)) ? 1 : 0;
  return count;
}

Value sequence_index(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("index", std::move(arguments), {"value", "start", "stop"}, 1);
  const auto size = static_cast<int64_t>(self.items().size());
  const auto bound = [&](size_t which, int64_t fallback) {
    const int64_t index = parameters.integer(which, fallback);
    return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
  };
  context.step(size);
  const int64_t stop = bound(2, size);
  for (int64_t i = bound(1, 0); i < stop; ++i) {
    if (equal(self.items()[static_cast<size_t>(i)], parameters.get(0))) return i;
  }
  value_error(repr(context, parameters.get(0)) + " is not in " + type_name(self));
}

Value is_whole(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("is_integer", std::move(arguments), {});
  return self.is_integral() || (std::isfinite(self.real()) && std::floor(self.real()) == self.real());
}

Value bit_length(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("bit_length", std::move(arguments), {});
  const int64_t number = self.integer();
  uint64_t rest = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  int64_t bits = 0;
  for (; rest != 0; rest >>= 1) ++bits;
  return bits;
}

struct Named {
  std::string_view name;
  Method method;
};

template <size_t N>
Method find(const Named (&table)[N], const std::string& name) {
  for (const Named& entry : table) {
    if (entry.name == name) return entry.method;
  }
  return nullptr;
}

}  // namespace

Method find_container_method(Kind kind, const std::string& name) {
  static constexpr Named kDict[] = {
      {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"copy", copy}};
  static constexpr Named kList[] = {{"copy", copy}, {"count", sequence_count}, {"index", sequence_index}};
  static constexpr Named kTuple[] = {{"count", sequence_count}, {"index", sequence_index}};
  if (kind == Kind::dict) return find(kDict, name);
  return kind == Kind::list ? find(kList, name) : find(kTuple, name);
}

Method find_number_method(Kind kind, const std::string& name) {
  static constexpr Named kReal[] = {{"is_integer", is_whole}};
  static constexpr Named kInteger[] = {{"bit_length", bit_length}};
  return kind == Kind::real ? find(kReal, name) : find(kInteger, name);
}

}  // namespace pacer::text::jinja
