// Filters that make text of text.
#include <algorithm>
#include <array>
#include <cmath>

#include "pacer/text/jinja/arithmetic.h"
#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/filters.h"
#include "pacer/text/jinja/lookup.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/python_format.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/text_tools.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

// Filters that Jinja writes as methods of the value fail on what is not text.
const std::string& only_text(const Value& input, const char* filter) {
  require_defined(input);
  if (!input.is_string()) type_error(std::string(filter) + " expects a string, not " + type_name(input));
  return input.text();
}

template <std::string (*F)(std::string_view)>
Value mapped(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("filter", std::move(arguments), {});
  return F(to_text(context, input));
}

Value as_string(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("string", std::move(arguments), {});
  return input.is_string() ? input : Value(to_text(context, input));
}

// Jinja's own rule: a word begins after white space or one of - ( { [ <.
std::string title(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = byte_offset(word, 1);
    out += upper(std::string_view(word).substr(0, first)) + lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const char32_t c = decode_at(text, at);
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      append_utf8(out, c);
    } else {
      append_utf8(word, c);
    }
  }
  flush();
  return out;
}

Value trim(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("trim", std::move(arguments), {"chars"});
  if (input.is_string() && parameters.get(0).is_none()) {
    context.charge(input.text().size());
    return strip(input.text(), nullptr, Side::both);
  }
  const std::string text = to_text(context, input);
  if (parameters.get(0).is_none()) return strip(text, nullptr, Side::both);
  const std::string set = parameters.text(0, "");
  return strip(text, &set, Side::both);
}

Value replaced(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("replace", std::move(arguments), {"old", "new", "count"}, 2);
  return replace(context, to_text(context, input), to_text(context, parameters.get(0)),
                 to_text(context, parameters.get(1)), parameters.integer(2, -1));
}

Value centered(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("center", std::move(arguments), {"width"});
  return center(context, to_text(context, input), parameters.integer(0, 80), " ");
}

Value formatted(Context& context, const Value& input, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    type_error("format: can't handle positional and keyword arguments at the same time");
  }
  const std::string format = to_text(context, input);
  if (arguments.named.empty()) return format_percent(context, format, Value::tuple(std::move(arguments.positional)));
  std::vector<std::pair<Value, Value>> entries;
  for (auto& [name, value] : arguments.named) entries.emplace_back(Value(name), std::move(value));
  return format_percent(context, format, Value::dict(std::move(entries)));
}

Value indented(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("indent", std::move(arguments), {"width", "first", "blank"});
  const Value width = parameters.get(0, 4);
  std::string indention;
  if (width.is_string()) {
    indention = width.text();
  } else {
    const int64_t count = std::max<int64_t>(parameters.integer(0, 4), 0);
    context.charge(static_cast<uint64_t>(count));
    indention.assign(static_cast<size_t>(count), ' ');
  }
  const bool blank = truth(parameters.get(2, false));
  const std::vector<std::string> lines = split_lines(only_text(input, "indent") + "\n");
  std::string out = truth(parameters.get(1, false)) ? indention : std::string();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (blank || !lines[i].empty()) out += indention;
      if (out.size() > context.limits().bytes) context.charge(out.size());
    }
    out += lines[i];
  }
  context.charge(out.size());
  return out;
}

Value truncated(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("truncate", std::move(arguments), {"length", "killwords", "end", "leeway"});
  const std::string& text = only_text(input, "truncate");
  const int64_t length = parameters.integer(0, 255);
  const std::string end = parameters.text(2, "...");
  const int64_t leeway = parameters.integer(3, 5);
  if (length < code_points(end)) value_error("expected length >= " + std::to_string(code_points(end)));
  if (leeway < 0) value_error("expected leeway >= 0");
  if (code_points(text) <= length + leeway) return input;
  context.charge(text.size());
  std::string cut = text.substr(0, byte_offset(text, length - code_points(end)));
  if (!truth(parameters.get(1, false))) {
    const size_t space = cut.rfind(' ');
    if (space != std::string::npos) cut.resize(space);
  }
  return cut + end;
}

Value word_count(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("wordcount", std::move(arguments), {});
  const std::string text = to_text(context, input);
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = is_word(decode_at(text, at));
    count += word && !inside ? 1 : 0;
    inside = word;
  }
  return count;
}

Value escaped(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("escape", std::move(arguments), {});
  if (input.is_safe()) return input;
  return Value(escape_html(to_text(context, input)), true);
}

Value force_escaped(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("forceescape", std::move(arguments), {});
  return Value(escape_html(to_text(context, input)), true);
}

Value safe(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("safe", std::move(arguments), {});
  return Value(to_text(context, input), true);
}

std::string quoted(std::string_view text, bool query) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    const auto byte = static_cast<unsigned char>(c);
    if (plain) {
      out += c;
    } else if (query && c == ' ') {
      out += '+';
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

Value url_encoded(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("urlencode", std::move(arguments), {});
  if (input.is_string() || !is_iterable(input)) return quoted(to_text(context, input), false);
  const Value pairs = input.is(Kind::dict) ? call(context, attribute(context, input, "items"), {}) : input;
  std::string out;
  for (const Value& pair : iterate(pairs)) {
    const std::vector<Value> both = iterate(pair);
    if (both.size() != 2) value_error("urlencode expects pairs");
    if (!out.empty()) out += '&';
    out += quoted(to_text(context, both[0]), true) + "=" + quoted(to_text(context, both[1]), true);
  }
  context.charge(out.size());
  return out;
}

Value tags_stripped(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("striptags", std::move(arguments), {});
  std::string text = to_text(context, input);
  for (size_t at = text.find("<!--"); at != std::string::npos; at = text.find("<!--", at)) {
    const size_t end = text.find("-->", at);
    if (end == std::string::npos) break;
    text.erase(at, end + 3 - at);
  }
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    const size_t end = text.find('>', at);
    if (end == std::string::npos) break;
    text.erase(at, end + 1 - at);
  }
  std::string out;
  for (const std::string& word : split(text, nullptr, -1, false)) out += (out.empty() ? "" : " ") + word;
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kEntities{
      {{"&lt;", "<"}, {"&gt;", ">"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}};
  for (const auto& [entity, character] : kEntities) {
    out = replace(context, out, std::string(entity), std::string(character), -1);
  }
  return out;
}

Value xml_attributes(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("xmlattr", std::move(arguments), {"autospace"});
  require_defined(input);
  if (!input.is(Kind::dict)) type_error("xmlattr expects a dict, not " + type_name(input));
  std::string out;
  for (const auto& [key, value] : input.entries().values) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string name = to_text(context, key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      value_error("Invalid character in attribute name: " + string_repr(name));
    }
    if (!out.empty()) out += ' ';
    out += escape_html(name) + "=\"" + (value.is_safe() ? value.text() : escape_html(to_text(context, value))) + '"';
  }
  if (!out.empty() && truth(parameters.get(0, true))) out.insert(out.begin(), ' ');
  context.charge(out.size());
  return out;
}

Value file_size(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("filesizeformat", std::move(arguments), {"binary"});
  require_defined(input);
  if (!input.is_number()) type_error("filesizeformat expects a number, not " + type_name(input));
  const bool binary_units = truth(parameters.get(0, false));
  const double base = binary_units ? 1024 : 1000, bytes = input.real();
  if (bytes == 1) return "1 Byte";
  if (bytes < base) return to_text(context, Value(static_cast<int64_t>(bytes))) + " Bytes";
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  for (size_t i = 0; i < kPrefixes.size(); ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == kPrefixes.size()) {
      const char prefix = binary_units && i == 0 ? 'K' : kPrefixes[i];
      return fixed(base * bytes / unit, 1) + " " + prefix + (binary_units ? "iB" : "B");
    }
  }
  return Value();
}

constexpr NamedFilter kFilters[] = {
    {"capitalize", mapped<capitalize>},
    {"center", centered},
    {"e", escaped},
    {"escape", escaped},
    {"filesizeformat", file_size},
    {"forceescape", force_escaped},
    {"format", formatted},
    {"indent", indented},
    {"lower", mapped<lower>},
    {"replace", replaced},
    {"safe", safe},
    {"string", as_string},
    {"striptags", tags_stripped},
    {"title", mapped<title>},
    {"trim", trim},
    {"truncate", truncated},
    {"upper", mapped<upper>},
    {"urlencode", url_encoded},
    {"wordcount", word_count},
    {"xmlattr", xml_attributes},
};

}  // namespace

Filter find_text_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace pacer::text::jinja
