#include "pacer/text/jinja/repr.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

void append_hex(std::string& out, const char* prefix, char32_t c, int width) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "%0*x", width, static_cast<unsigned>(c));
  out += prefix;
  out += buffer;
}

void append_repr(Context& context, std::string& out, const Value& value) {
  const Context::Level level(context);
  context.step();
  switch (value.kind()) {
    case Kind::undefined:
      out += "Undefined";
      return;
    case Kind::string:
      out += value.is_safe() ? "Markup(" + string_repr(value.text()) + ")" : string_repr(value.text());
      return;
    case Kind::list:
    case Kind::tuple: {
      const bool list = value.is(Kind::list);
      out += list ? '[' : '(';
      bool first = true;
      for (const Value& item : value.items()) {
        if (!first) out += ", ";
        first = false;
        append_repr(context, out, item);
      }
      if (!list && value.items().size() == 1) out += ',';
      out += list ? ']' : ')';
      return;
    }
    case Kind::dict: {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.entries().values) {
        if (!first) out += ", ";
        first = false;
        append_repr(context, out, key);
        out += ": ";
        append_repr(context, out, item);
      }
      out += '}';
      return;
    }
    case Kind::object:
      out += value.object().repr(context);
      return;
    default:
      append_text(context, out, value);
  }
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string digits;
  std::string sign;
  const char* at = buffer;
  if (*at == '-') sign = "-", ++at;
  for (; at < end && *at != 'e'; ++at) {
    if (*at != '.') digits += *at;
  }
  int exponent = 0;
  const char* number = at + 1;
  if (*number == '+') ++number;
  std::from_chars(number, end, exponent);
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    char tail[16];
    std::snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + tail;
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string string_repr(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t c = decode_at(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else if (c < 0x100) {
      append_hex(out, "\\x", c, 2);
    } else if (c < 0x10000) {
      append_hex(out, "\\u", c, 4);
    } else {
      append_hex(out, "\\U", c, 8);
    }
  }
  out += quote;
  return out;
}

std::string repr(Context& context, const Value& value) {
  std::string out;
  append_repr(context, out, value);
  context.charge(out.size());
  return out;
}

void append_text(Context& context, std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return;
    case Kind::none:
      out += "None";
      return;
    case Kind::boolean:
      out += value.boolean() ? "True" : "False";
      return;
    case Kind::integer:
      out += std::to_string(value.integer());
      return;
    case Kind::real:
      out += float_repr(value.real());
      return;
    case Kind::string:
      out += value.text();
      return;
    default:
      append_repr(context, out, value);
  }
}

std::string to_text(Context& context, const Value& value) {
  std::string out;
  append_text(context, out, value);
  context.charge(out.size());
  return out;
}

}  // namespace pacer::text::jinja
