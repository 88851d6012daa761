#include "pacer/text/jinja/objects.h"

#include <algorithm>

#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/repr.h"

namespace pacer::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // MAX_RANGE of Jinja's sandbox

int64_t range_length(int64_t start, int64_t stop, int64_t step) {
  const auto low = static_cast<__int128>(step > 0 ? start : stop);
  const auto high = static_cast<__int128>(step > 0 ? stop : start);
  if (high <= low) return 0;
  const auto stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = (high - low - 1) / stride + 1;
  if (count > kMaxRange) {
    throw Failure(FailureType::overflow, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                                             std::to_string(kMaxRange) + ").");
  }
  return static_cast<int64_t>(count);
}

}  // namespace

std::string Namespace::repr(Context& context) const {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : values) entries.emplace_back(Value(name), value);
  return "<Namespace " + jinja::repr(context, Value::dict(std::move(entries))) + ">";
}

std::optional<Value> Namespace::attribute(Context&, const std::string& name) {
  for (const auto& [key, value] : values) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Namespace::set(const std::string& name, Value value) {
  for (auto& [key, old] : values) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  values.emplace_back(name, std::move(value));
}

std::optional<Value> Iterator::next() {
  if (values_.empty()) return std::nullopt;
  Value first = values_.front();
  values_.erase(values_.begin());
  return first;
}

std::string View::repr(Context& context) const {
  return type_ + "(" + jinja::repr(context, Value::list(values_)) + ")";
}

Range::Range(int64_t start, int64_t stop, int64_t step) : start_(start), stop_(stop), step_(step) {
  if (step == 0) value_error("range() arg 3 must not be zero");
  length_ = range_length(start, stop, step);
}

std::string Range::repr(Context&) const {
  return "range(" + std::to_string(start_) + ", " + std::to_string(stop_) +
         (step_ == 1 ? "" : ", " + std::to_string(step_)) + ")";
}

bool Range::equals(const Object& other) const {
  const auto* range = dynamic_cast<const Range*>(&other);
  if (range == nullptr || range->length_ != length_) return false;
  return length_ == 0 || (range->start_ == start_ && (length_ == 1 || range->step_ == step_));
}

std::optional<std::vector<Value>> Range::iterate() {
  std::vector<Value> values;
  values.reserve(static_cast<size_t>(length_));
  for (int64_t i = 0; i < length_; ++i) values.emplace_back(start_ + i * step_);
  return values;
}

Value make_iterator(std::vector<Value> values) {
  return Value(std::shared_ptr<Object>(std::make_shared<Iterator>(std::move(values))));
}

Value make_function(std::string name, Function::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::move(name), std::move(body))));
}

}  // namespace pacer::text::jinja
