// The format mini-language: [[fill]align][sign][#][0][width][grouping][.precision][type].
#include <cmath>
#include <cstdio>

#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/python_format.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

struct Specification {
  char32_t fill = ' ';
  char align = 0;
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;
  int precision = -1;
  char type = 0;
};

bool is_align(char32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

int64_t read_number(const std::u32string& text, size_t& at) {
  int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + static_cast<int64_t>(text[at++] - '0');
    if (number > 1'000'000) value_error("Too many decimal digits in format string");
  }
  return number;
}

Specification parse(std::string_view source) {
  const std::u32string text = to_code_points(source);
  Specification out;
  size_t at = 0;
  if (text.size() > 1 && is_align(text[1])) {
    out.fill = text[0];
    out.align = static_cast<char>(text[1]);
    at = 2;
  } else if (!text.empty() && is_align(text[0])) {
    out.align = static_cast<char>(text[0]);
    at = 1;
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) {
    out.sign = static_cast<char>(text[at++]);
  }
  if (at < text.size() && text[at] == '#') out.alternate = true, ++at;
  if (at < text.size() && text[at] == '0') {
    if (out.align == 0) out.fill = '0', out.align = '=';
    ++at;
  }
  out.width = read_number(text, at);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) out.grouping = static_cast<char>(text[at++]);
  if (at < text.size() && text[at] == '.') {
    const size_t start = ++at;
    out.precision = static_cast<int>(read_number(text, at));
    if (at == start) value_error("Format specifier missing precision");
  }
  if (at < text.size() && text[at] < 0x80) out.type = static_cast<char>(text[at++]);
  if (at != text.size()) value_error("Invalid format specifier '" + std::string(source) + "'");
  return out;
}

// sign and prefix, body; '=' pads between them.
std::string pad(Context& context, const Specification& spec, const std::string& sign, const std::string& body,
                char fallback_align) {
  const int64_t missing = spec.width - code_points(sign) - code_points(body);
  if (missing <= 0) return sign + body;
  context.charge(static_cast<uint64_t>(missing) * 4);
  const auto filler = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) append_utf8(out, spec.fill);
    return out;
  };
  switch (spec.align != 0 ? spec.align : fallback_align) {
    case '<':
      return sign + body + filler(missing);
    case '^':
      return filler(missing / 2) + sign + body + filler(missing - missing / 2);
    case '=':
      return sign + filler(missing) + body;
    default:
      return filler(missing) + sign + body;
  }
}

std::string group(const std::string& digits, char separator, size_t size) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string sign_of(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

std::string in_base(uint64_t value, unsigned base) {
  if (value == 0) return "0";
  std::string out;
  for (; value > 0; value /= base) out.insert(out.begin(), "0123456789abcdef"[value % base]);
  return out;
}

[[noreturn]] void unknown_code(const Specification& spec, const Value& value) {
  value_error("Unknown format code '" + std::string(1, spec.type) + "' for object of type '" + type_name(value) + "'");
}

std::string format_integer(Context& context, const Specification& spec, const Value& value) {
  if (spec.precision >= 0) value_error("Precision not allowed in integer format specifier");
  const int64_t number = value.integer();
  const uint64_t magnitude = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  std::string digits, prefix;
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n':
      digits = in_base(magnitude, 10);
      break;
    case 'b':
      digits = in_base(magnitude, 2), prefix = "0b";
      break;
    case 'o':
      digits = in_base(magnitude, 8), prefix = "0o";
      break;
    case 'x':
      digits = in_base(magnitude, 16), prefix = "0x";
      break;
    case 'X':
      digits = upper(in_base(magnitude, 16)), prefix = "0X";
      break;
    case 'c': {
      if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
        throw Failure(FailureType::overflow, "%c arg not in range(0x110000)");
      }
      std::string character;
      append_utf8(character, static_cast<char32_t>(number));
      return pad(context, spec, "", character, '<');
    }
    default:
      unknown_code(spec, value);
  }
  if (spec.grouping != 0) {
    digits = group(digits, spec.grouping, spec.type == 0 || spec.type == 'd' || spec.type == 'n' ? 3 : 4);
  }
  return pad(context, spec, sign_of(number < 0, spec.sign) + (spec.alternate ? prefix : ""), digits, '>');
}

std::string printed(const char* format, int precision, double value) {
  std::string out(64, '\0');
  const int size = std::snprintf(out.data(), out.size(), format, precision, value);
  out.resize(static_cast<size_t>(size) + 1);
  std::snprintf(out.data(), out.size(), format, precision, value);
  out.pop_back();
  return out;
}

std::string format_real(Context& context, const Specification& spec, const Value& value) {
  const double number = value.real();
  const double magnitude = std::fabs(number);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  std::string body;
  if (!std::isfinite(number)) {
    body = float_repr(magnitude);
    if (spec.type >= 'A' && spec.type <= 'Z') body = upper(body);
    if (spec.type == '%') body += '%';
  } else {
    switch (spec.type) {
      case 0:
        if (spec.precision < 0) {
          body = float_repr(magnitude);
        } else {  // as g, but a number without exponent keeps one decimal
          body = printed("%.*g", std::max(precision, 1), magnitude);
          if (body.find_first_of(".e") == std::string::npos) body += ".0";
        }
        break;
      case 'e':
        body = printed("%.*e", precision, magnitude);
        break;
      case 'E':
        body = printed("%.*E", precision, magnitude);
        break;
      case 'f':
      case 'F':
        body = printed("%.*f", precision, magnitude);
        break;
      case 'g':
      case 'n':
        body = printed(spec.alternate ? "%#.*g" : "%.*g", precision, magnitude);
        break;
      case 'G':
        body = printed(spec.alternate ? "%#.*G" : "%.*G", precision, magnitude);
        break;
      case '%':
        body = printed("%.*f", precision, magnitude * 100) + "%";
        break;
      default:
        unknown_code(spec, value);
    }
    if (spec.grouping != 0) {
      const size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
      body = group(body.substr(0, whole), spec.grouping, 3) + body.substr(whole);
    }
  }
  return pad(context, spec, sign_of(std::signbit(number) && !std::isnan(number), spec.sign), body, '>');
}

}  // namespace

std::string fixed(double value, int digits) { return printed("%.*f", digits, value); }

std::string format_value(Context& context, const Value& value, std::string_view specification) {
  if (specification.empty()) return to_text(context, value);
  const Specification spec = parse(specification);
  switch (value.kind()) {
    case Kind::string: {
      if (spec.type != 0 && spec.type != 's') unknown_code(spec, value);
      if (spec.align == '=' && spec.fill != '0') value_error("'=' alignment not allowed in string format specifier");
      std::string text = value.text();
      if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
      return pad(context, spec, "", text, '<');
    }
    case Kind::boolean:
    case Kind::integer:
      if (spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos) {
        return format_real(context, spec, Value(static_cast<double>(value.integer())));
      }
      return format_integer(context, spec, value);
    case Kind::real:
      return format_real(context, spec, value);
    case Kind::undefined:
      fail_undefined(value);
    default:
      type_error("unsupported format string passed to " + type_name(value) + ".__format__");
  }
}

}  // namespace pacer::text::jinja
