// Filters over lists, dicts and other things that can be walked.
#include <algorithm>

#include "pacer/text/jinja/arithmetic.h"
#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/filters.h"
#include "pacer/text/jinja/lookup.h"
#include "pacer/text/jinja/objects.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

std::vector<Value> walk(Context& context, const Value& input) {
  std::vector<Value> values = iterate(input);
  context.step(static_cast<int64_t>(values.size()));
  return values;
}

Value without_case(const Value& value) { return value.is_string() ? Value(lower(value.text())) : value; }

// sorted(): stable, also in reverse. keys[i] belongs to values[i].
std::vector<Value> sorted_by(std::vector<Value> values, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> index(values.size());
  for (size_t i = 0; i < index.size(); ++i) index[i] = i;
  std::stable_sort(index.begin(), index.end(), [&](size_t a, size_t b) {
    const auto result = reverse ? order(keys[b], keys[a], "<") : order(keys[a], keys[b], "<");
    return result && *result < 0;
  });
  std::vector<Value> out;
  out.reserve(values.size());
  for (const size_t i : index) out.push_back(std::move(values[i]));
  return out;
}

Value length_of(Context&, const Value& input, Arguments arguments) {
  const Parameters parameters("length", std::move(arguments), {});
  return length(input);
}

Value as_list(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("list", std::move(arguments), {});
  std::vector<Value> values = walk(context, input);
  context.charge(values.size() * sizeof(Value));
  return Value::list(std::move(values));
}

Value first(Context&, const Value& input, Arguments arguments) {
  const Parameters parameters("first", std::move(arguments), {});
  if (auto* iterator = input.object_as<Iterator>()) {
    if (auto next = iterator->next()) return *std::move(next);
    return Value::undefined("No first item, sequence was empty.");
  }
  if (input.is_sequence() && !input.items().empty()) return input.items().front();
  const std::vector<Value> values = iterate(input);
  return values.empty() ? Value::undefined("No first item, sequence was empty.") : values.front();
}

void require_reversible(const Value& input) {
  if (input.object_as<Iterator>() != nullptr) type_error("'generator' object is not reversible");
}

Value last(Context&, const Value& input, Arguments arguments) {
  const Parameters parameters("last", std::move(arguments), {});
  require_reversible(input);
  if (input.is_sequence() && !input.items().empty()) return input.items().back();
  const std::vector<Value> values = iterate(input);
  return values.empty() ? Value::undefined("No last item, sequence was empty.") : values.back();
}

Value reversed(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("reverse", std::move(arguments), {});
  if (input.is_string()) return slice(context, input, Value(), Value(), Value(-1));
  std::vector<Value> values = walk(context, input);
  std::reverse(values.begin(), values.end());
  if (input.object_as<Iterator>() != nullptr) return Value::list(std::move(values));
  return Value(std::shared_ptr<Object>(std::make_shared<Iterator>(std::move(values), "reverse_iterator")));
}

Value joined(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("join", std::move(arguments), {"d", "attribute"});
  const std::string separator = to_text(context, parameters.get(0, ""));
  std::string out;
  bool rest = false;
  for (const Value& value : walk(context, input)) {
    if (rest) out += separator;
    rest = true;
    append_text(context, out, parameters.has(1) ? item_path(context, value, parameters.get(1)) : value);
    if (out.size() > context.limits().bytes) context.charge(out.size());
  }
  context.charge(out.size());
  return out;
}

Value dict_sorted(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  const bool case_sensitive = truth(parameters.get(0, false));
  const std::string by = parameters.text(1, "key");
  if (by != "key" && by != "value") value_error("You can only sort by either \"key\" or \"value\"");
  require_defined(input);
  if (!input.is(Kind::dict)) type_error("dictsort expects a dict, not " + type_name(input));
  std::vector<Value> pairs, keys;
  for (const auto& [key, value] : input.entries().values) {
    context.step();
    pairs.push_back(Value::tuple({key, value}));
    const Value& subject = by == "key" ? key : value;
    keys.push_back(case_sensitive ? subject : without_case(subject));
  }
  return Value::list(sorted_by(std::move(pairs), keys, truth(parameters.get(2, false))));
}

// "a,b.c": several paths give a list of keys.
Value sort_key(Context& context, const Value& value, const Value& attribute, bool case_sensitive) {
  std::vector<Value> keys;
  if (attribute.is_string()) {
    const std::string& paths = attribute.text();
    for (size_t start = 0; start <= paths.size();) {
      const size_t end = std::min(paths.find(',', start), paths.size());
      keys.push_back(item_path(context, value, Value(paths.substr(start, end - start))));
      start = end + 1;
    }
  } else {
    keys.push_back(item_path(context, value, attribute));
  }
  if (!case_sensitive) {
    for (Value& key : keys) key = without_case(key);
  }
  return Value::list(std::move(keys));
}

Value sorted(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = truth(parameters.get(1, false));
  std::vector<Value> values = walk(context, input), keys;
  for (const Value& value : values) keys.push_back(sort_key(context, value, parameters.get(2), case_sensitive));
  context.charge(values.size() * 4 * sizeof(Value));
  return Value::list(sorted_by(std::move(values), keys, truth(parameters.get(0, false))));
}

Value unique(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("unique", std::move(arguments), {"case_sensitive", "attribute"});
  const bool case_sensitive = truth(parameters.get(0, false));
  std::vector<Value> out, seen;
  for (const Value& value : walk(context, input)) {
    Value key = item_path(context, value, parameters.get(1));
    if (!case_sensitive) key = without_case(key);
    require_hashable(key);
    context.step(static_cast<int64_t>(seen.size()));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(key, other); })) continue;
    seen.push_back(key);
    out.push_back(value);
  }
  return make_iterator(std::move(out));
}

template <bool Largest>
Value extreme(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters(Largest ? "max" : "min", std::move(arguments), {"case_sensitive", "attribute"});
  const bool case_sensitive = truth(parameters.get(0, false));
  const std::vector<Value> values = walk(context, input);
  if (values.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& value) {
    const Value key = item_path(context, value, parameters.get(1));
    return case_sensitive ? key : without_case(key);
  };
  size_t best = 0;
  Value best_key = key_of(values[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    Value key = key_of(values[i]);
    const auto result = Largest ? order(key, best_key, ">") : order(best_key, key, "<");
    if (result && *result > 0) {
      best = i;
      best_key = std::move(key);
    }
  }
  return values[best];
}

Value sum(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("sum", std::move(arguments), {"attribute", "start"});
  Value total = parameters.get(1, 0);
  if (total.is_string()) type_error("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& value : walk(context, input)) {
    total = binary(context, BinaryOperator::add, total, item_path(context, value, parameters.get(0)));
  }
  return total;
}

Value batched(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("batch", std::move(arguments), {"linecount", "fill_with"}, 1);
  const int64_t count = parameters.integer(0, 1);
  std::vector<Value> out, row;
  for (const Value& value : walk(context, input)) {
    if (static_cast<int64_t>(row.size()) == count) out.push_back(Value::list(std::exchange(row, {})));
    row.push_back(value);
  }
  if (!row.empty()) {
    const Value fill = parameters.get(1);
    if (!fill.is_none() && count > static_cast<int64_t>(row.size())) {
      context.step(count);
      row.resize(static_cast<size_t>(count), fill);
    }
    out.push_back(Value::list(std::move(row)));
  }
  return make_iterator(std::move(out));
}

Value sliced(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("slice", std::move(arguments), {"slices", "fill_with"}, 1);
  const int64_t slices = parameters.integer(0, 1);
  const std::vector<Value> values = walk(context, input);
  const auto size = static_cast<int64_t>(values.size());
  if (slices == 0) throw Failure(FailureType::zero_division, "integer division or modulo by zero");
  std::vector<Value> out;
  const Value fill = parameters.get(1);
  int64_t start = 0;
  for (int64_t i = 0; i < slices; ++i) {
    context.step();
    const bool longer = i < size % slices;
    const int64_t count = size / slices + (longer ? 1 : 0);
    std::vector<Value> column(values.begin() + start, values.begin() + start + count);
    start += count;
    if (!fill.is_none() && !longer) column.push_back(fill);
    out.push_back(Value::list(std::move(column)));
  }
  return make_iterator(std::move(out));
}

Value grouped(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("groupby", std::move(arguments), {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = truth(parameters.get(2, false));
  const auto raw_key = [&](const Value& value) {
    return item_path(context, value, parameters.get(0), parameters.get(1));
  };
  std::vector<Value> values = walk(context, input), keys;
  for (const Value& value : values) keys.push_back(case_sensitive ? raw_key(value) : without_case(raw_key(value)));
  values = sorted_by(std::move(values), keys, false);
  std::vector<Value> out;
  for (size_t i = 0; i < values.size();) {
    const Value name = raw_key(values[i]);
    const Value key = case_sensitive ? name : without_case(name);
    std::vector<Value> group;
    for (; i < values.size(); ++i) {
      const Value other = raw_key(values[i]);
      if (!equal(key, case_sensitive ? other : without_case(other))) break;
      group.push_back(values[i]);
    }
    out.push_back(Value::tuple({name, Value::list(std::move(group))}));
  }
  return Value::list(std::move(out));
}

Value items_of(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("items", std::move(arguments), {});
  if (input.is_undefined()) return make_iterator({});
  if (!input.is(Kind::dict)) type_error("Can only get item pairs from a mapping.");
  return make_iterator(iterate(call(context, attribute(context, input, "items"), {})));
}

constexpr NamedFilter kFilters[] = {
    {"batch", batched},    {"count", length_of}, {"dictsort", dict_sorted}, {"first", first},
    {"groupby", grouped},  {"items", items_of},  {"join", joined},          {"last", last},
    {"length", length_of}, {"list", as_list},    {"max", extreme<true>},    {"min", extreme<false>},
    {"reverse", reversed}, {"slice", sliced},    {"sort", sorted},          {"sum", sum},
    {"unique", unique},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace pacer::text::jinja
