// Training rows: token ids and which of them are answers of the target.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace pacer::data {

struct TokenRow {
  std::string id;
  std::vector<int64_t> ids;         // prompt_ids followed by output_ids
  std::vector<uint8_t> supervised;  // 1 on output_ids; same length
};

struct RowProblems {
  std::map<std::string, std::vector<int64_t>> lines_by_reason;  // 1-based lines of dropped rows
  int64_t dropped() const;
  std::string summary() const;  // "; REASON: N (first in line L)" for every reason, empty without any
};

struct RowOptions {
  int64_t max_length = 4096;       // longer rows are cut on the right
  int64_t minimum_supervised = 2;  // consecutive supervised tokens a block draft needs
  int64_t vocab_size = 0;          // ids must lie below; 0: not checked
};

struct Rows {
  std::vector<TokenRow> rows;
  RowProblems problems;
  uint64_t fingerprint = 0;  // of the content that was kept, for resume checks
};

// Reads rows {id, messages, prompt_ids, output_ids, finish_reason, text} as `pacer data generate` writes them.
// A line that is not such a row is dropped and counted by reason; a file without any good row is Error{data}.
Rows read_rows(const std::filesystem::path& path, const RowOptions& options);

// Order of the samples of an epoch: a permutation that depends on (seed, epoch) only.
std::vector<int64_t> epoch_order(uint64_t seed, uint64_t epoch, int64_t count);

}  // namespace pacer::data
