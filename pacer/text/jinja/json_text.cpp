#include "pacer/text/jinja/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

void append_escape(std::string& out, char32_t unit) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(unit));
  out += buffer;
}

void append_string(std::string& out, const std::string& text, bool ensure_ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = decode_at(text, at);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
          append_escape(out, c);
        } else if (ensure_ascii && c >= 0x10000) {
          append_escape(out, 0xD800 + ((c - 0x10000) >> 10));
          append_escape(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
        } else {
          out.append(text, start, at - start);
        }
    }
  }
  out += '"';
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_repr(value);
}

class Writer {
 public:
  Writer(Context& context, const JsonStyle& style) : context_(context), style_(style) {}

  std::string out;

  void write(const Value& value) {
    const Context::Level level(context_);
    context_.step();
    switch (value.kind()) {
      case Kind::none:
        out += "null";
        return;
      case Kind::boolean:
        out += value.boolean() ? "true" : "false";
        return;
      case Kind::integer:
        out += std::to_string(value.integer());
        return;
      case Kind::real:
        out += number_text(value.real());
        return;
      case Kind::string:
        append_string(out, value.text(), style_.ensure_ascii);
        return;
      case Kind::list:
      case Kind::tuple:
        write_list(value.items());
        return;
      case Kind::dict:
        write_dict(value.entries());
        return;
      default:
        type_error("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

 private:
  void line(int level) {
    if (!style_.indent) return;
    const uint64_t size = out.size() + style_.indent->size() * static_cast<uint64_t>(level);
    if (size > context_.limits().bytes) context_.charge(size);  // throws
    out += '\n';
    for (int i = 0; i < level; ++i) out += *style_.indent;
  }

  void write_list(const std::vector<Value>& values) {
    if (values.empty()) {
      out += "[]";
      return;
    }
    out += '[';
    ++level_;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      line(level_);
      write(values[i]);
    }
    line(--level_);
    out += ']';
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::string:
        return key.text();
      case Kind::none:
        return "null";
      case Kind::boolean:
        return key.boolean() ? "true" : "false";
      case Kind::integer:
        return std::to_string(key.integer());
      case Kind::real:
        return number_text(key.real());
      default:
        type_error("keys must be str, int, float, bool or None, not " + type_name(key));
    }
  }

  void write_dict(const Entries& entries) {
    if (entries.values.empty()) {
      out += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> sorted;
    for (const auto& entry : entries.values) sorted.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(sorted.begin(), sorted.end(),
                       [](const auto* a, const auto* b) { return order(a->first, b->first, "<").value_or(0) < 0; });
    }
    out += '{';
    ++level_;
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      line(level_);
      append_string(out, key_text(sorted[i]->first), style_.ensure_ascii);
      out += style_.key_separator;
      write(sorted[i]->second);
    }
    line(--level_);
    out += '}';
  }

  Context& context_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

std::string json_text(Context& context, const Value& value, const JsonStyle& style) {
  Writer writer(context, style);
  writer.write(value);
  context.charge(writer.out.size());
  return std::move(writer.out);
}

Value filter_tojson(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("tojson", std::move(arguments), {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = truth(parameters.get(0, false));
  const Value indent = parameters.get(1);
  if (indent.is_string()) {
    style.indent = indent.text();
  } else if (indent.is_integral()) {
    context.charge(static_cast<uint64_t>(std::max<int64_t>(indent.integer(), 0)));
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(indent.integer(), 0)), ' ');
  } else if (!indent.is_none()) {
    type_error("tojson: indent must be a number or a string, not " + type_name(indent));
  }
  if (style.indent) style.item_separator = ",";
  const Value separators = parameters.get(2);
  if (!separators.is_none()) {
    const std::vector<Value> pair = iterate(separators);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      value_error("tojson: separators must be two strings");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  style.sort_keys = truth(parameters.get(3, false));
  return json_text(context, input, style);
}

}  // namespace pacer::text::jinja
