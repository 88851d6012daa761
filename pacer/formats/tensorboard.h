// TensorBoard event files: scalars over steps, readable by TensorBoard and by what reads its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pacer::formats {

struct Scalar {
  std::string tag;   // "train/loss"
  double value = 0;  // stored as f32
};

// One event file, appended to with one write per event: a process that dies loses nothing, a machine that dies at most
// the tail, and TensorBoard reads the rest. Not thread-safe.
//
// A record is  u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data,  little endian,
// with mask(c) = rotate_right(c, 15) + 0xa282ead8. The data is a protocol buffer:
//   Event { 1: double wall_time; 2: int64 step; 3: string file_version; 5: Summary; 7: SessionLog { 1: enum status } }
//   Summary { repeated 1: Value { 1: string tag; 2: float simple_value } }
class TensorBoardWriter {
 public:
  using Clock = std::function<double()>;  // seconds since 1970; the system clock when empty

  // Makes `folder` if needed, and a new file in it. resumed_at: the first step of a run that continues an earlier one;
  // TensorBoard then drops what older files of the folder say about that step and later ones.
  // Throws Error{resources}.
  explicit TensorBoardWriter(const std::filesystem::path& folder, std::optional<int64_t> resumed_at = std::nullopt,
                             Clock clock = {});
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  // One event with all values; NaN and infinities are kept. Throws Error{resources} on a full disk, Error{bug} for an
  // empty tag or a negative step.
  void add(int64_t step, std::span<const Scalar> scalars);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write_event(int64_t step, std::string_view field);

  std::filesystem::path path_;
  Clock clock_;
  int descriptor_ = -1;
};

}  // namespace pacer::formats
