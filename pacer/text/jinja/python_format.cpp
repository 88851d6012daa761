#include "pacer/text/jinja/python_format.h"

#include <algorithm>

#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/lookup.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class BraceFormatter {
 public:
  BraceFormatter(Context& context, const Arguments& arguments) : context_(context), arguments_(arguments) {}

  std::string format(std::string_view source, int depth = 0) {
    if (depth > 2) value_error("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < source.size();) {
      const char c = source[at];
      if (c != '{' && c != '}') {
        out += c;
        ++at;
        continue;
      }
      if (at + 1 < source.size() && source[at + 1] == c) {
        out += c;
        at += 2;
        continue;
      }
      if (c == '}') value_error("Single '}' encountered in format string");
      const size_t end = matching(source, at);
      out += field(source.substr(at + 1, end - at - 1), depth);
      at = end + 1;
    }
    context_.charge(out.size());
    return out;
  }

 private:
  static size_t matching(std::string_view source, size_t open) {
    int level = 0;
    for (size_t at = open; at < source.size(); ++at) {
      if (source[at] == '{') ++level;
      if (source[at] == '}' && --level == 0) return at;
    }
    value_error("expected '}' before end of string");
  }

  std::string field(std::string_view source, int depth) {
    context_.step();
    size_t end = 0;
    for (int bracket = 0; end < source.size(); ++end) {
      if (source[end] == '[') ++bracket;
      if (source[end] == ']') --bracket;
      if (bracket == 0 && (source[end] == ':' || source[end] == '!')) break;
    }
    Value value = lookup(source.substr(0, end));
    if (end < source.size() && source[end] == '!') {
      const char conversion = end + 1 < source.size() ? source[end + 1] : '\0';
      if (conversion == 'r' || conversion == 'a') {
        value = repr(context_, value);
      } else if (conversion == 's') {
        value = to_text(context_, value);
      } else {
        value_error("Unknown conversion specifier in format string");
      }
      end += 2;
      if (end < source.size() && source[end] != ':') value_error("expected ':' after conversion specifier");
    }
    const std::string specification = end < source.size() ? format(source.substr(end + 1), depth + 1) : std::string();
    return format_value(context_, value, specification);
  }

  Value lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    for (size_t at = end; at < path.size();) {
      if (path[at] == '.') {
        const size_t next = std::min(path.find_first_of(".[", at + 1), path.size());
        value = attribute(context_, value, std::string(path.substr(at + 1, next - at - 1)));
        at = next;
      } else {
        const size_t close = path.find(']', at);
        if (path[at] != '[' || close == std::string_view::npos) value_error("Missing ']' in format string");
        const std::string_view key = path.substr(at + 1, close - at - 1);
        value = item(context_, value, all_digits(key) ? Value(int64_t{std::stoll(std::string(key))}) : Value(key));
        at = close + 1;
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    if (name.empty() || all_digits(name)) {
      const size_t index = name.empty() ? next_++ : static_cast<size_t>(std::stoul(std::string(name)));
      if (index >= arguments_.positional.size()) {
        throw Failure(FailureType::index,
                      "Replacement index " + std::to_string(index) + " out of range for positional args tuple");
      }
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw Failure(FailureType::key, "'" + std::string(name) + "'");
  }

  Context& context_;
  const Arguments& arguments_;
  size_t next_ = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(Context& context, const std::string& format, const Value& values)
      : context_(context), format_(format), values_(values) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      if (format_[at_] != '%') {
        out += format_[at_++];
        continue;
      }
      ++at_;
      directive(out);
    }
    // What can be indexed counts as a mapping, and a mapping need not be used up.
    const bool mapping =
        values_.is(Kind::dict) || values_.is(Kind::list) || (values_.is(Kind::object) && values_.object().indexable());
    if (values_.is(Kind::tuple) ? next_ < values_.items().size() : !mapping && !named_ && next_ == 0) {
      type_error("not all arguments converted during string formatting");
    }
    context_.charge(out.size());
    return out;
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) value_error("incomplete format");
    return format_[at_];
  }

  Value take() {
    if (!values_.is(Kind::tuple)) {
      if (next_++ > 0) type_error("not enough arguments for format string");
      return values_;
    }
    if (next_ >= values_.items().size()) type_error("not enough arguments for format string");
    return values_.items()[next_++];
  }

  int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value value = take();
      if (!value.is_integral()) type_error("* wants int");
      return value.integer();
    }
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (format_[at_++] - '0');
      if (value > 1'000'000) value_error("width too big");
    }
    return value;
  }

  void directive(std::string& out) {
    context_.step();
    std::optional<Value> named;
    if (peek() == '(') {
      const size_t close = format_.find(')', at_);
      if (close == std::string::npos) value_error("incomplete format key");
      if (!values_.is(Kind::dict)) type_error("format requires a mapping");
      const std::string key = format_.substr(at_ + 1, close - at_ - 1);
      const Value* found = values_.entries().find(std::string_view(key));
      if (found == nullptr) throw Failure(FailureType::key, string_repr(key));
      named = *found;
      named_ = true;
      at_ = close + 1;
    }
    bool left = false, zero = false, alternate = false;
    std::string sign;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-') {
        left = true;
      } else if (c == '0') {
        zero = true;
      } else if (c == '#') {
        alternate = true;
      } else if (c == '+' || (c == ' ' && sign.empty())) {
        sign = std::string(1, c);
      } else if (c != ' ') {
        break;
      }
    }
    int64_t width = number();
    if (width < 0) left = true, width = -width;
    std::string precision;
    if (peek() == '.') {
      ++at_;
      precision = "." + std::to_string(std::max<int64_t>(number(), 0));
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    const char type = format_[at_++];
    if (type == '%') {
      out += '%';
      return;
    }
    const Value value = named ? *named : take();
    const std::string align = left ? "<" : zero && type != 's' && type != 'r' && type != 'a' ? "" : ">";
    const std::string head =
        align + sign + (alternate ? "#" : "") + (align.empty() ? "0" : "") + (width > 0 ? std::to_string(width) : "");
    out += one(value, type, head, precision);
  }

  std::string one(const Value& value, char type, const std::string& head, const std::string& precision) {
    switch (type) {
      case 's':
        return format_value(context_, Value(to_text(context_, value)), head + precision);
      case 'r':
      case 'a':
        return format_value(context_, Value(repr(context_, value)), head + precision);
      case 'c':
        if (value.is_string() && code_points(value.text()) == 1) return format_value(context_, value, head);
        if (!value.is(Kind::integer)) type_error("%c requires int or char");
        return format_value(context_, value, head + "c");
      case 'd':
      case 'i':
      case 'u': {
        require_defined(value);
        if (!value.is_number()) {
          type_error(std::string("%") + type + " format: a real number is required, not " + type_name(value));
        }
        const Value whole = value.is(Kind::real) ? Value(static_cast<int64_t>(value.real())) : Value(value.integer());
        return format_value(context_, whole, head + "d");
      }
      case 'x':
      case 'X':
      case 'o':
        require_defined(value);
        if (!value.is_integral()) {
          type_error(std::string("%") + type + " format: an integer is required, not " + type_name(value));
        }
        return format_value(context_, Value(value.integer()), head + type);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        require_defined(value);
        if (!value.is_number()) type_error("must be real number, not " + type_name(value));
        return format_value(context_, Value(value.real()), head + precision + type);
      default:
        value_error(std::string("unsupported format character '") + type + "'");
    }
  }

  Context& context_;
  const std::string& format_;
  const Value& values_;
  size_t at_ = 0;
  size_t next_ = 0;
  bool named_ = false;
};

}  // namespace

Value format_braces(Context& context, const std::string& format, const Arguments& arguments) {
  return BraceFormatter(context, arguments).format(format);
}

Value format_percent(Context& context, const std::string& format, const Value& values) {
  return PercentFormatter(context, format, values).run();
}

}  // namespace pacer::text::jinja
