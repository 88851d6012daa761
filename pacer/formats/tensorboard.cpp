#include "pacer/formats/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer::formats {
namespace {

enum class Wire : uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7F) | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_fixed(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void put_key(std::string& out, uint32_t field, Wire wire) {
  put_varint(out, (field << 3) | static_cast<uint32_t>(wire));
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

uint32_t masked_crc(std::string_view data) {
  return std::rotr(crc32c(std::as_bytes(std::span(data))), 15) + 0xa282ead8u;
}

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "host";
  return name.data();
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, std::optional<int64_t> resumed_at,
                                     Clock clock)
    : clock_(clock ? std::move(clock) : system_seconds) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  // Readers take files of one folder in the order of their names, so the time comes first, at a fixed width; the
  // counter keeps apart two files of one second.
  const std::string seconds = std::to_string(static_cast<int64_t>(clock_()));
  const std::string padded = std::string(seconds.size() < 10 ? 10 - seconds.size() : 0, '0') + seconds;
  for (int count = 0; descriptor_ < 0 && count < 1000; ++count) {
    path_ = folder / ("events.out.tfevents." + padded + "." + host_name() + "." + std::to_string(::getpid()) + "." +
                      std::to_string(count));
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) {
    throw Error(ErrorKind::resources, path_.string() + ": cannot be made: " + std::strerror(errno),
                "may this user write there, and is there space?");
  }
  try {
    std::string version;
    put_bytes(version, 3, "brain.Event:2");
    write_event(0, version);
    if (resumed_at) {
      std::string start, status;
      put_key(status, 1, Wire::varint);
      put_varint(status, 1);  // SessionLog.START
      put_bytes(start, 7, status);
      write_event(*resumed_at, start);
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TensorBoardWriter::~TensorBoardWriter() { ::close(descriptor_); }

void TensorBoardWriter::add(int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    if (scalar.tag.empty()) throw Error(ErrorKind::bug, "TensorBoard: a scalar without a tag");
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::fixed32);
    put_fixed(value, std::bit_cast<uint32_t>(static_cast<float>(scalar.value)), 4);
    put_bytes(summary, 1, value);
  }
  std::string field;
  put_bytes(field, 5, summary);
  write_event(step, field);
}

void TensorBoardWriter::write_event(int64_t step, std::string_view field) {
  if (step < 0) throw Error(ErrorKind::bug, "TensorBoard: step " + std::to_string(step));
  std::string data;
  put_key(data, 1, Wire::fixed64);
  put_fixed(data, std::bit_cast<uint64_t>(clock_()), 8);
  put_key(data, 2, Wire::varint);
  put_varint(data, static_cast<uint64_t>(step));
  data += field;

  std::string record;
  put_fixed(record, data.size(), 8);
  put_fixed(record, masked_crc(record), 4);
  record += data;
  put_fixed(record, masked_crc(data), 4);
  write_all(descriptor_, std::as_bytes(std::span(record)), path_);
}

}  // namespace pacer::formats
