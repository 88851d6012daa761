#include "plugins/simnpu/settings.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "pacer/base/error.h"

namespace pacer::simnpu {
namespace {

int64_t number(const std::string& place, std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Error(ErrorKind::usage, place + ": '" + std::string(text) + "' is no whole number from " +
                                      std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

int64_t from_environment(const char* name, int64_t otherwise, int64_t least, int64_t most) {
  const char* text = std::getenv(name);
  return text ? number(name, text, least, most) : otherwise;
}

struct Row {
  const char* name;
  const char* meaning;
  int64_t most;
  std::atomic<int64_t> value;
};

constexpr int64_t kAny = INT64_MAX;

// In the order of the enumeration.
std::array<Row, 17> rows = {{
    {"hazard_checker", "two accesses of one memory without an order throw", 1, {1}},
    {"poison", "memory that was handed out and not yet written reads as NaN", 1, {1}},
    {"delay_seed", "start kernels late by amounts drawn from this seed", kAny, {0}},
    {"synchronous_launches", "operators so far that waited for the device", kAny, {0}},
    {"launches", "kernels so far", kAny, {0}},
    {"refuse_float64", "operators on float64 tensors", 1, {1}},
    {"refuse_int64_indices", "int64 index tensors: only int32 is accepted", 1, {0}},
    {"refuse_zero_size", "kernels on tensors without elements", 1, {1}},
    {"refuse_bfloat16_gru", "the fused GRU cell in bfloat16", 1, {1}},
    {"refuse_bfloat16_logsumexp", "logsumexp in bfloat16", 1, {1}},
    {"refuse_event_timing", "the time between two events", 1, {1}},
    {"refuse_reduce_float64", "collectives that reduce float64", 1, {1}},
    {"refuse_reduce_bool", "collectives that reduce bool", 1, {1}},
    {"refuse_reduce_uint8", "collectives that reduce uint8", 1, {1}},
    {"refuse_single_rank", "collectives of a group of one rank", 1, {1}},
    {"reduced_columns",
     "most columns of a matrix that one operator reduces over, as the on-chip buffer has them",
     kAny,
     {0}},
    {"ignore_visible_devices", "count the devices of the machine, whatever ASCEND_RT_VISIBLE_DEVICES says", 1, {1}},
}};

void assign(const std::string& place, std::string_view name, std::string_view text) {
  for (Row& row : rows) {
    if (name == row.name) {
      row.value = number(place + ": " + row.name, text, 0, row.most);
      return;
    }
  }
  std::string names;
  for (const Row& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  throw Error(ErrorKind::usage, place + ": there is no switch '" + std::string(name) + "'", "switches: " + names);
}

// Before the first look at a switch, so that a value that was set at run time is never overwritten.
void read_environment_once() {
  static const bool done = [] {
    const char* text = std::getenv("SIMNPU_SWITCHES");
    for (std::string_view rest = text ? text : ""; !rest.empty();) {
      const std::string_view item = rest.substr(0, rest.find(','));
      rest.remove_prefix(item.size() + (item.size() < rest.size()));
      const size_t equals = item.find('=');
      if (equals == std::string_view::npos) {
        throw Error(ErrorKind::usage, "SIMNPU_SWITCHES: '" + std::string(item) + "' is not name=value");
      }
      assign("SIMNPU_SWITCHES", item.substr(0, equals), item.substr(equals + 1));
    }
    return true;
  }();
  (void)done;
}

Row& row_of(Switch which) {
  read_environment_once();
  return rows[static_cast<size_t>(which)];
}

}  // namespace

const Settings& settings() {
  constexpr size_t kMiB = size_t{1} << 20;
  static const Settings all{
      static_cast<int>(from_environment("SIMNPU_DEVICE_COUNT", 2, 0, 16)),
      static_cast<size_t>(from_environment("SIMNPU_MEMORY_MB", 4096, 1, 1 << 20)) * kMiB,
      static_cast<size_t>(from_environment("SIMNPU_PINNED_MB", 2048, 1, 1 << 20)) * kMiB,
  };
  return all;
}

int64_t value_of(Switch which) { return row_of(which).value.load(std::memory_order_relaxed); }
void count(Switch which) { row_of(which).value.fetch_add(1, std::memory_order_relaxed); }

std::vector<device::Switch> list_switches() {
  read_environment_once();
  std::vector<device::Switch> list;
  for (const Row& row : rows) list.push_back({row.name, row.meaning, row.value.load(), row.most == 1});
  return list;
}

void set_switch(const std::string& name, int64_t value) {
  read_environment_once();
  assign("simnpu", name, std::to_string(value));
}

}  // namespace pacer::simnpu
