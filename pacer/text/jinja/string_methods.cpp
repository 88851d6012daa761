// The methods of str.
#include <algorithm>
#include <string_view>

#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/lookup.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/python_format.h"
#include "pacer/text/jinja/text_tools.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

const std::string& required_text(const Value& value, const char* method) {
  require_defined(value);
  if (!value.is_string()) type_error(std::string(method) + "() argument must be str, not " + type_name(value));
  return value.text();
}

Value texts(Context& context, const std::vector<std::string>& parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const std::string& part : parts) {
    context.charge(part.size() + sizeof(Value));
    out.emplace_back(part);
  }
  return Value::list(std::move(out));
}

template <std::string (*F)(std::string_view)>
Value mapped(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("method", std::move(arguments), {});
  context.charge(self.text().size());
  return F(self.text());
}

template <Side S>
Value stripped(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("strip", std::move(arguments), {"chars"});
  context.charge(self.text().size());
  const Value set = parameters.get(0);
  if (set.is_none()) return strip(self.text(), nullptr, S);
  return strip(self.text(), &required_text(set, "strip"), S);
}

template <bool FromRight>
Value splitted(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters(FromRight ? "rsplit" : "split", std::move(arguments), {"sep", "maxsplit"});
  const Value separator = parameters.get(0);
  const std::string* text = separator.is_none() ? nullptr : &required_text(separator, "split");
  return texts(context, split(self.text(), text, parameters.integer(1, -1), FromRight));
}

Value lines(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("splitlines", std::move(arguments), {"keepends"});
  return texts(context, split_lines(self.text(), truth(parameters.get(0, false))));
}

template <bool FromRight>
Value partitioned(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("partition", std::move(arguments), {"sep"}, 1);
  const Value separator_value = parameters.get(0);
  const std::string& separator = required_text(separator_value, "partition");
  if (separator.empty()) value_error("empty separator");
  const std::string& text = self.text();
  context.charge(text.size());
  const size_t at = FromRight ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    return FromRight ? Value::tuple({"", "", self}) : Value::tuple({self, "", ""});
  }
  return Value::tuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

Value replaced(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("replace", std::move(arguments), {"old", "new", "count"}, 2);
  const Value from = parameters.get(0), to = parameters.get(1);
  return replace(context, self.text(), required_text(from, "replace"), required_text(to, "replace"),
                 parameters.integer(2, -1));
}

// The part that optional start and stop (code points) select; `begin` is where it starts in bytes.
std::string_view window(const Value& self, const Parameters& parameters, size_t first, size_t& begin) {
  const std::string_view text = self.text();
  const int64_t size = code_points(text);
  const auto bound = [&](size_t which, int64_t fallback) {
    const int64_t index = parameters.integer(which, fallback);
    return std::max<int64_t>(index < 0 ? index + size : index, 0);
  };
  const int64_t start = bound(first, 0), stop = std::min(bound(first + 1, size), size);
  begin = std::string_view::npos;
  if (start > stop) return {};
  begin = byte_offset(text, start);
  return text.substr(begin, byte_offset(text, stop) - begin);
}

template <bool Last, bool MustFind>
Value found(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters(MustFind ? "index" : "find", std::move(arguments), {"sub", "start", "end"}, 1);
  const Value wanted_value = parameters.get(0);
  const std::string& wanted = required_text(wanted_value, "find");
  size_t begin = 0;
  const std::string_view part = window(self, parameters, 1, begin);
  const size_t at = begin == std::string_view::npos ? begin : Last ? part.rfind(wanted) : part.find(wanted);
  if (at == std::string_view::npos) {
    if (MustFind) value_error("substring not found");
    return -1;
  }
  return code_points(std::string_view(self.text()).substr(0, begin + at));
}

Value counted(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("count", std::move(arguments), {"sub", "start", "end"}, 1);
  const Value wanted_value = parameters.get(0);
  const std::string& wanted = required_text(wanted_value, "count");
  size_t begin = 0;
  const std::string_view part = window(self, parameters, 1, begin);
  if (begin == std::string_view::npos) return 0;
  if (wanted.empty()) return code_points(part) + 1;
  int64_t count = 0;
  for (size_t at = part.find(wanted); at != std::string_view::npos; at = part.find(wanted, at + wanted.size())) {
    ++count;
  }
  return count;
}

template <bool End>
Value affixed(Context&, const Value& self, Arguments arguments) {
  const char* name = End ? "endswith" : "startswith";
  const Parameters parameters(name, std::move(arguments), {"prefix", "start", "end"}, 1);
  size_t begin = 0;
  const std::string_view part = window(self, parameters, 1, begin);
  const auto matches = [&](const Value& affix) {
    const std::string& text = required_text(affix, name);
    return begin != std::string_view::npos && (End ? part.ends_with(text) : part.starts_with(text));
  };
  const Value affix = parameters.get(0);
  if (!affix.is(Kind::tuple)) return matches(affix);
  return std::any_of(affix.items().begin(), affix.items().end(), matches);
}

template <bool End>
Value without_affix(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters(End ? "removesuffix" : "removeprefix", std::move(arguments), {"affix"}, 1);
  const Value affix_value = parameters.get(0);
  const std::string& affix = required_text(affix_value, "removeprefix");
  const std::string& text = self.text();
  context.charge(text.size());
  if (End) return text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text;
  return text.starts_with(affix) ? text.substr(affix.size()) : text;
}

Value joined(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("join", std::move(arguments), {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& part : iterate(parameters.get(0))) {
    context.step();
    if (!part.is_string()) {
      require_defined(part);
      type_error("sequence item: expected str instance, " + type_name(part) + " found");
    }
    if (!first) out += self.text();
    first = false;
    out += part.text();
    if (out.size() > context.limits().bytes) context.charge(out.size());
  }
  context.charge(out.size());
  return out;
}

enum class Justify { left, right, middle };

template <Justify J>
Value justified(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("justify", std::move(arguments), {"width", "fillchar"}, 1);
  const std::string fill = parameters.text(1, " ");
  if (code_points(fill) != 1) type_error("The fill character must be exactly one character long");
  const int64_t width = parameters.integer(0, 0);
  if (J == Justify::middle) return center(context, self.text(), width, fill);
  const int64_t missing = std::max<int64_t>(width - code_points(self.text()), 0);
  if (static_cast<uint64_t>(missing) > context.limits().bytes) context.charge(context.limits().bytes + 1);
  context.charge(static_cast<uint64_t>(missing) * fill.size() + self.text().size());
  std::string padding;
  for (int64_t i = 0; i < missing; ++i) padding += fill;
  return J == Justify::left ? self.text() + padding : padding + self.text();
}

Value zero_filled(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("zfill", std::move(arguments), {"width"}, 1);
  const std::string& text = self.text();
  const int64_t missing = std::max<int64_t>(parameters.integer(0, 0) - code_points(text), 0);
  context.charge(static_cast<uint64_t>(missing) + text.size());
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return text.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') + text.substr(sign);
}

Value tabs_expanded(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("expandtabs", std::move(arguments), {"tabsize"});
  const int64_t size = parameters.integer(0, 8);
  std::string out;
  int64_t column = 0;
  for (size_t at = 0; at < self.text().size();) {
    const char32_t c = decode_at(self.text(), at);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      context.charge(static_cast<uint64_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      append_utf8(out, c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  context.charge(out.size());
  return out;
}

Value formatted(Context& context, const Value& self, Arguments arguments) {
  return format_braces(context, self.text(), arguments);
}

Value formatted_map(Context& context, const Value& self, Arguments arguments) {
  const Parameters parameters("format_map", std::move(arguments), {"mapping"}, 1);
  const Value mapping = parameters.get(0);
  if (!mapping.is(Kind::dict)) type_error("format_map() needs a dict");
  Arguments named;
  for (const auto& [key, value] : mapping.entries().values) {
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  }
  return format_braces(context, self.text(), named);
}

template <bool (*F)(char32_t)>
Value all_are(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("method", std::move(arguments), {});
  for (size_t at = 0; at < self.text().size();) {
    if (!F(decode_at(self.text(), at))) return false;
  }
  return !self.text().empty();
}

bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

Value is_ascii(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("isascii", std::move(arguments), {});
  return std::all_of(self.text().begin(), self.text().end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

Value printable(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("isprintable", std::move(arguments), {});
  for (size_t at = 0; at < self.text().size();) {
    if (!is_printable(decode_at(self.text(), at))) return false;
  }
  return true;
}

Value identifier(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("isidentifier", std::move(arguments), {});
  const std::u32string text = to_code_points(self.text());
  return !text.empty() && !is_numeric(text[0]) && std::all_of(text.begin(), text.end(), is_word);
}

Value title_cased(Context&, const Value& self, Arguments arguments) {
  const Parameters parameters("istitle", std::move(arguments), {});
  bool cased = false, inside_word = false;
  for (size_t at = 0; at < self.text().size();) {
    const char32_t c = decode_at(self.text(), at);
    if (is_upper(c) || is_title(c)) {
      if (inside_word) return false;
      inside_word = cased = true;
    } else if (is_lower(c)) {
      if (!inside_word) return false;
      cased = true;
    } else {
      inside_word = false;
    }
  }
  return cased;
}

struct Named {
  std::string_view name;
  Method method;
};

constexpr Named kMethods[] = {
    {"capitalize", mapped<capitalize>},
    {"casefold", mapped<fold_case>},
    {"center", justified<Justify::middle>},
    {"count", counted},
    {"endswith", affixed<true>},
    {"expandtabs", tabs_expanded},
    {"find", found<false, false>},
    {"format", formatted},
    {"format_map", formatted_map},
    {"index", found<false, true>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isidentifier", identifier},
    {"islower", [](Context&, const Value& self, Arguments) { return Value(has_case(self.text(), false)); }},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", printable},
    {"isspace", all_are<is_space>},
    {"istitle", title_cased},
    {"isupper", [](Context&, const Value& self, Arguments) { return Value(has_case(self.text(), true)); }},
    {"join", joined},
    {"ljust", justified<Justify::left>},
    {"lower", mapped<lower>},
    {"lstrip", stripped<Side::left>},
    {"partition", partitioned<false>},
    {"removeprefix", without_affix<false>},
    {"removesuffix", without_affix<true>},
    {"replace", replaced},
    {"rfind", found<true, false>},
    {"rindex", found<true, true>},
    {"rjust", justified<Justify::right>},
    {"rpartition", partitioned<true>},
    {"rsplit", splitted<true>},
    {"rstrip", stripped<Side::right>},
    {"split", splitted<false>},
    {"splitlines", lines},
    {"startswith", affixed<false>},
    {"strip", stripped<Side::both>},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<title_words>},
    {"upper", mapped<upper>},
    {"zfill", zero_filled},
};

}  // namespace

Method find_string_method(const std::string& name) {
  const auto* end = std::end(kMethods);
  const auto* at = std::lower_bound(std::begin(kMethods), end, name,
                                    [](const Named& entry, const std::string& wanted) { return entry.name < wanted; });
  return at != end && at->name == name ? at->method : nullptr;
}

}  // namespace pacer::text::jinja
