#include "pacer/text/jinja/globals.h"

#include <algorithm>
#include <ctime>

#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/objects.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

Value make_range(Context& context, Arguments arguments) {
  if (!arguments.named.empty()) type_error("range() takes no keyword arguments");
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3) type_error("range expected 1 to 3 arguments");
  for (const Value& value : given) {
    require_defined(value);
    if (!value.is_integral()) {
      type_error("'" + type_name(value) + "' object cannot be interpreted as an integer");
    }
  }
  const int64_t start = given.size() > 1 ? given[0].integer() : 0;
  const int64_t stop = given[given.size() > 1 ? 1 : 0].integer();
  auto range = std::make_shared<Range>(start, stop, given.size() > 2 ? given[2].integer() : 1);
  context.step(*range->length());
  return Value(std::shared_ptr<Object>(std::move(range)));
}

// What dict() and namespace() take: a dict or pairs, then keywords.
std::vector<std::pair<Value, Value>> entries_of(Context& context, const char* name, const Arguments& arguments) {
  if (arguments.positional.size() > 1) type_error(std::string(name) + " expected at most 1 argument");
  std::vector<std::pair<Value, Value>> out;
  const auto put = [&](const Value& key, const Value& value) {
    context.step(1 + static_cast<int64_t>(out.size()));
    require_hashable(key);
    for (auto& [known, old] : out) {
      if (equal(known, key)) {
        old = value;
        return;
      }
    }
    out.emplace_back(key, value);
  };
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (source.is(Kind::dict)) {
      out = source.entries().values;
    } else {
      for (const Value& pair : iterate(source)) {
        const std::vector<Value> both = iterate(pair);
        if (both.size() != 2) value_error("dictionary update sequence element has length other than 2");
        put(both[0], both[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.named) put(Value(key), value);
  context.charge(out.size() * 2 * sizeof(Value));
  return out;
}

Value make_dict(Context& context, Arguments arguments) { return Value::dict(entries_of(context, "dict", arguments)); }

Value make_namespace(Context& context, Arguments arguments) {
  const auto space = context.make_namespace();
  for (auto& [key, value] : entries_of(context, "namespace", arguments)) space->set(to_text(context, key), value);
  return Value(std::shared_ptr<Object>(space));
}

Value raise_exception(Context& context, Arguments arguments) {
  const Parameters parameters("raise_exception", std::move(arguments), {"message"}, 1);
  std::string message = to_text(context, parameters.get(0));
  std::ranges::replace(message, '\0', ' ');  // it would end the message of an exception
  if (message.empty()) message = "the template raised an exception without a message";
  throw Failure(FailureType::raised, message);
}

Value strftime_now(Context& context, Arguments arguments) {
  const Parameters parameters("strftime_now", std::move(arguments), {"format"}, 1);
  const std::string format = parameters.text(0, "");
  if (format.empty()) return "";
  if (format.find("%f") != std::string::npos) value_error("strftime_now: %f (microseconds) is not supported");
  const std::tm now = context.now();
  // A blank keeps an empty result apart from a buffer that is too small.
  const std::string padded = format + " ";
  std::string out(format.size() * 4 + 64, '\0');
  for (;;) {
    const size_t size = std::strftime(out.data(), out.size(), padded.c_str(), &now);
    if (size > 0) {
      out.resize(size - 1);
      break;
    }
    context.charge(out.size());
    out.resize(out.size() * 2);
  }
  context.charge(out.size());
  if (find_invalid_utf8(out) != std::string::npos) value_error("strftime_now: the result is not UTF-8");
  return out;
}

Value make_cycler(Context&, Arguments arguments) {
  if (!arguments.named.empty()) type_error("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) throw Failure(FailureType::value, "at least one item has to be provided");
  const auto items = std::make_shared<const std::vector<Value>>(std::move(arguments.positional));
  const auto position = std::make_shared<size_t>(0);
  return Value(std::shared_ptr<Object>(std::make_shared<Record>(
      "jinja2.utils.Cycler", [items, position](Context&, const std::string& name) -> std::optional<Value> {
        if (name == "current") return (*items)[*position];
        if (name == "next") {
          return make_function("next", [items, position](Context&, Arguments) {
            const Value current = (*items)[*position];
            *position = (*position + 1) % items->size();
            return current;
          });
        }
        if (name == "reset") {
          return make_function("reset", [position](Context&, Arguments) {
            *position = 0;
            return Value();
          });
        }
        return std::nullopt;
      })));
}

Value make_joiner(Context&, Arguments arguments) {
  const Parameters parameters("joiner", std::move(arguments), {"sep"});
  const Value separator = parameters.get(0, ", ");
  const auto used = std::make_shared<bool>(false);
  return make_function(
      "joiner", [separator, used](Context&, Arguments) { return std::exchange(*used, true) ? separator : Value(""); });
}

}  // namespace

const std::vector<std::pair<std::string, Value>>& globals() {
  static const std::vector<std::pair<std::string, Value>> all{
      {"range", make_function("range", make_range)},
      {"dict", make_function("dict", make_dict)},
      {"namespace", make_function("namespace", make_namespace)},
      {"cycler", make_function("cycler", make_cycler)},
      {"joiner", make_function("joiner", make_joiner)},
      {"raise_exception", make_function("raise_exception", raise_exception)},
      {"strftime_now", make_function("strftime_now", strftime_now)},
  };
  return all;
}

}  // namespace pacer::text::jinja
