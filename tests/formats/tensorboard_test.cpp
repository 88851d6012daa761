#include "pacer/formats/tensorboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

// An independent reader: CRC bit by bit, protocol buffers field by field.
uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

uint32_t unmask(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

template <typename T>
T take(std::string_view& data) {
  if (data.size() < sizeof(T)) throw std::runtime_error("record cut off");
  T value;
  std::copy_n(data.begin(), sizeof value, reinterpret_cast<char*>(&value));
  data.remove_prefix(sizeof value);
  return value;
}

uint64_t take_varint(std::string_view& data) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<uint8_t>(data);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return value;
  }
}

struct Field {
  uint64_t number = 0;          // varint, fixed64 or fixed32
  std::string_view bytes = {};  // length-delimited
};

std::multimap<uint64_t, Field> message(std::string_view data) {
  std::multimap<uint64_t, Field> fields;
  while (!data.empty()) {
    const uint64_t key = take_varint(data);
    Field field;
    switch (key & 7) {
      case 0:
        field.number = take_varint(data);
        break;
      case 1:
        field.number = take<uint64_t>(data);
        break;
      case 5:
        field.number = take<uint32_t>(data);
        break;
      case 2: {
        const uint64_t size = take_varint(data);
        if (size > data.size()) throw std::runtime_error("field cut off");
        field.bytes = data.substr(0, size);
        data.remove_prefix(size);
        break;
      }
      default:
        throw std::runtime_error("unknown wire type");
    }
    fields.emplace(key >> 3, field);
  }
  return fields;
}

struct Event {
  double wall_time = 0;
  uint64_t step = 0;
  std::string version;
  std::optional<uint64_t> session;
  std::vector<std::pair<std::string, float>> scalars;
};

std::vector<Event> read_events(std::string_view data) {
  std::vector<Event> events;
  while (!data.empty()) {
    const std::string_view length_bytes = data.substr(0, 8);
    const auto length = take<uint64_t>(data);
    EXPECT_EQ(unmask(take<uint32_t>(data)), slow_crc32c(length_bytes));
    const std::string_view body = data.substr(0, length);
    data.remove_prefix(length);
    EXPECT_EQ(unmask(take<uint32_t>(data)), slow_crc32c(body));
    Event event;
    for (const auto& [number, field] : message(body)) {
      if (number == 1) event.wall_time = std::bit_cast<double>(field.number);
      if (number == 2) event.step = field.number;
      if (number == 3) event.version = field.bytes;
      if (number == 7) event.session = message(field.bytes).find(1)->second.number;
      if (number != 5) continue;
      for (const auto& [unused, value] : message(field.bytes)) {
        const auto parts = message(value.bytes);
        event.scalars.emplace_back(parts.find(1)->second.bytes,
                                   std::bit_cast<float>(static_cast<uint32_t>(parts.find(2)->second.number)));
      }
    }
    events.push_back(event);
  }
  return events;
}

TEST(TensorBoard, AnIndependentReaderFindsWhatWasWritten) {
  const test::TemporaryFolder folder;
  std::filesystem::path path;
  {
    TensorBoardWriter writer(folder.path() / "run", std::nullopt, [] { return 1234.5; });
    path = writer.path();
    writer.add(0, std::vector<Scalar>{{"train/loss", 2.75}});
    writer.add(300, std::vector<Scalar>{{"train/loss", 0.1}, {"eval/длина", 3.5}});
    writer.add(int64_t{1} << 40, std::vector<Scalar>{{"bad", NAN}, {"worse", -INFINITY}});
  }
  EXPECT_TRUE(path.filename().string().starts_with("events.out.tfevents.0000001234."));
  const std::string content = read_file(path);
  const std::vector<Event> events = read_events(content);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2") << "the first record says which format follows";
  EXPECT_EQ(events[0].wall_time, 1234.5);
  EXPECT_EQ(events[1].scalars, (std::vector<std::pair<std::string, float>>{{"train/loss", 2.75f}}));
  EXPECT_EQ(events[2].step, 300u);
  EXPECT_EQ(events[2].scalars,
            (std::vector<std::pair<std::string, float>>{{"train/loss", 0.1f}, {"eval/длина", 3.5f}}));
  EXPECT_EQ(events[3].step, uint64_t{1} << 40);
  EXPECT_TRUE(std::isnan(events[3].scalars.at(0).second));
  EXPECT_EQ(events[3].scalars.at(1).second, -INFINITY);
}

TEST(TensorBoard, TheFirstRecordHasTheBytesThatOtherWritersProduce) {
  const test::TemporaryFolder folder;
  const TensorBoardWriter writer(folder.path(), std::nullopt, [] { return 0.0; });
  const std::string content = read_file(writer.path());
  // length 26, its masked checksum, then fields 1 (eight zero bytes), 2 (zero) and 3 ("brain.Event:2").
  ASSERT_EQ(content.size(), 8u + 4 + 26 + 4);
  EXPECT_EQ(content.substr(0, 8), std::string("\x1a\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(content.substr(12, 26), std::string("\x09\0\0\0\0\0\0\0\0\x10\0\x1a\x0d"
                                                "brain.Event:2",
                                                26));
}

TEST(TensorBoard, AResumedRunMarksItsFirstStepInAFileOfItsOwn) {
  const test::TemporaryFolder folder;
  const auto clock = [] { return 77.0; };
  const TensorBoardWriter first(folder.path(), std::nullopt, clock), second(folder.path(), 40, clock);
  EXPECT_NE(first.path(), second.path());
  EXPECT_LT(first.path(), second.path());
  const std::string content = read_file(second.path());
  const std::vector<Event> events = read_events(content);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].step, 40u);
  EXPECT_EQ(events[1].session, 1u);
}

TEST(TensorBoard, RefusesWhatItCannotWrite) {
  const test::TemporaryFolder folder;
  TensorBoardWriter writer(folder.path());
  EXPECT_THROW(writer.add(-1, std::vector<Scalar>{{"a", 1}}), Error);
  EXPECT_THROW(writer.add(1, std::vector<Scalar>{{"", 1}}), Error);
  write_file(folder.path() / "file", "x");
  EXPECT_THROW(TensorBoardWriter(folder.path() / "file" / "below"), Error);
}

}  // namespace
}  // namespace pacer::formats
