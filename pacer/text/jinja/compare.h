// Truth, equality, order, membership and iteration as Python defines them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
bool identical(const Value& a, const Value& b);  // "is"

// Negative, 0 or positive; empty when NaN is involved. Throws Failure{type} for values without a common order.
// symbol: the operator that a message names.
std::optional<int> order(const Value& a, const Value& b, const char* symbol);

// item in container
bool contains(const Value& container, const Value& item);

void require_hashable(const Value& key);

// The elements; strings give characters, dicts keys. An iterator is empty afterwards.
std::vector<Value> iterate(const Value& value);
bool is_iterable(const Value& value);
int64_t length(const Value& value);  // len()

}  // namespace pacer::text::jinja
