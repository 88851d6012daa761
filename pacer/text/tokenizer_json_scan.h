// JSON as a row of events, for files too large to become a tree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pacer::text {

// Each returns false to end the scan. Views are valid during the call.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  virtual bool number_integer(int64_t value) = 0;    // below 0
  virtual bool number_unsigned(uint64_t value) = 0;  // 0 and above
  virtual bool number_real(double value) = 0;
  virtual bool text(std::string_view value) = 0;
  virtual bool key(std::string_view name) = 0;
  virtual bool start_object() = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;
};

// Both tell all of `json` to `events` and return whether it was well-formed and every event was taken. Nesting is
// bounded by the events' own refusal. The fast one (simdjson) refuses integers of more than 64 bits, which the other
// reads as real numbers; where both accept, the events are the same.
bool scan_json_fast(const std::string& json, JsonEvents& events);
bool scan_json(std::string_view json, JsonEvents& events);

}  // namespace pacer::text
