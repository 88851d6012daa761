#include "pacer/text/tokenizer_json_scan.h"

#include <string>

#include <simdjson.h>

#include "pacer/base/json.h"

namespace pacer::text {
namespace {

using simdjson::ondemand::json_type;

// Throws simdjson_error for what is not JSON; false: an event was refused.
template <typename Value>
bool tell(Value&& value, JsonEvents& events) {
  switch (json_type(value.type())) {
    case json_type::object: {
      if (!events.start_object()) return false;
      for (auto field : value.get_object()) {
        if (!events.key(std::string_view(field.unescaped_key())) || !tell(field.value(), events)) return false;
      }
      return events.end_object();
    }
    case json_type::array: {
      if (!events.start_array()) return false;
      for (auto element : value.get_array()) {
        if (!tell(element, events)) return false;
      }
      return events.end_array();
    }
    case json_type::string:
      return events.text(std::string_view(value.get_string()));
    case json_type::boolean:
      return events.boolean(bool(value.get_bool()));
    case json_type::null:
      return value.is_null() && events.null();
    case json_type::number: {
      const simdjson::ondemand::number number = value.get_number();
      if (number.is_uint64()) return events.number_unsigned(number.get_uint64());
      if (!number.is_int64()) return events.number_real(number.get_double());
      const int64_t integer = number.get_int64();
      return integer < 0 ? events.number_integer(integer) : events.number_unsigned(static_cast<uint64_t>(integer));
    }
  }
  return false;
}

// The same events from the tree's own parser.
class Forward final : public nlohmann::json_sax<OrderedJson> {
 public:
  explicit Forward(JsonEvents& events) : events_(events) {}
  bool null() override { return events_.null(); }
  bool boolean(bool value) override { return events_.boolean(value); }
  bool number_integer(int64_t value) override {  // "-0" is one
    return value < 0 ? events_.number_integer(value) : events_.number_unsigned(static_cast<uint64_t>(value));
  }
  bool number_unsigned(uint64_t value) override { return events_.number_unsigned(value); }
  bool number_float(double value, const std::string&) override { return events_.number_real(value); }
  bool string(std::string& value) override { return events_.text(value); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool key(std::string& name) override { return events_.key(name); }
  bool start_object(size_t) override { return events_.start_object(); }
  bool end_object() override { return events_.end_object(); }
  bool start_array(size_t) override { return events_.start_array(); }
  bool end_array() override { return events_.end_array(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  JsonEvents& events_;
};

}  // namespace

bool scan_json_fast(const std::string& json, JsonEvents& events) {
  try {
    simdjson::padded_string copy;
    simdjson::padded_string_view padded(json.data(), json.size(), json.capacity());
    if (json.capacity() - json.size() < simdjson::SIMDJSON_PADDING) {
      copy = simdjson::padded_string(json);
      padded = copy;
    }
    simdjson::ondemand::parser parser;
    simdjson::ondemand::document document = parser.iterate(padded);
    // Behind the last value there is nowhere to stand; simdjson before 3.1 has no other way to ask.
    return tell(document, events) && document.current_location().error() == simdjson::OUT_OF_BOUNDS;
  } catch (const simdjson::simdjson_error&) {
    return false;  // the caller asks the other scanner, whose parser says where and why
  }
}

bool scan_json(std::string_view json, JsonEvents& events) {
  Forward forward(events);
  return OrderedJson::sax_parse(json, &forward);
}

}  // namespace pacer::text
