// The file that `pacer data generate` writes: one answer of the target per line, resumable by id.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::data {

struct GeneratedRow {
  std::string id;
  OrderedJson messages;  // what was asked, and the answer as the last message
  std::vector<int64_t> prompt_ids, output_ids;
  std::string finish_reason;  // "stop" | "length"
  std::string text;           // output_ids decoded without special tokens
};

// Append-only while answers come in; finish() puts them into one order. A process that was killed in the middle of a
// line leaves a torn last line: it is cut off when the file is opened again, and its prompt is answered again.
class GeneratedRows {
 public:
  // settings: what the answers depend on (target, sampling, template). They stand in PATH.meta.json; a file that was
  // begun with others is refused with Error{usage}, because its rows would not be of one kind. So is a file that
  // another process is writing.
  GeneratedRows(std::filesystem::path path, const Json& settings);
  ~GeneratedRows();
  GeneratedRows(const GeneratedRows&) = delete;
  GeneratedRows& operator=(const GeneratedRows&) = delete;

  bool contains(const std::string& id) const { return answers_.contains(id); }
  const std::string& answer(const std::string& id) const { return answers_.at(id).text; }  // of a row in the file
  int64_t size() const { return static_cast<int64_t>(answers_.size()); }
  int64_t healed_bytes() const { return healed_bytes_; }  // of a torn last line

  void append(const GeneratedRow& row);  // written at once; safe against a crash after sync()
  void sync();
  // The last call: rows in the order of `ids`, others behind them, in one step. So a file that was interrupted and
  // continued has the same bytes as one that was not, though answers arrive in another order then.
  void finish(const std::vector<std::string>& ids);

 private:
  struct Answer {
    std::string text;
    int64_t begin = 0, end = 0;  // its line in the file
  };
  void open_and_lock();
  void read_rows();
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t healed_bytes_ = 0;
  int64_t end_ = 0;  // of the file
  std::unordered_map<std::string, Answer> answers_;
};

}  // namespace pacer::data
