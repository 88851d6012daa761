#include "pacer/train/row_sets.h"

#include <array>
#include <cstdio>
#include <limits>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"

namespace pacer::train {
namespace {

std::string hex(uint64_t value) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

data::Rows read(const std::string& path, const Recipe& recipe, int64_t vocab_size) {
  data::RowOptions options;
  options.max_length = recipe.data.max_length;
  options.vocab_size = vocab_size;
  data::Rows rows = data::read_rows(path, options);
  int64_t tokens = 0, answers = 0;
  for (const data::TokenRow& row : rows.rows) {
    tokens += static_cast<int64_t>(row.ids.size());
    for (const uint8_t supervised : row.supervised) answers += supervised;
  }
  log_info(path + ": " + format_count(static_cast<int64_t>(rows.rows.size())) + " rows, " + format_count(tokens) +
           " tokens, " + format_count(answers) + " of them answers");
  for (const auto& [reason, lines] : rows.problems.lines_by_reason) {
    log_warning(path + ": dropped " + format_count(static_cast<int64_t>(lines.size())) + " rows: " + reason +
                " (first in line " + std::to_string(lines.front()) + ")");
  }
  return rows;
}

}  // namespace

RowSets read_row_sets(const Recipe& recipe, int64_t vocab_size) {
  RowSets sets;
  data::Rows train = read(recipe.data.train, recipe, vocab_size);
  sets.train_fingerprint = hex(train.fingerprint);
  std::vector<data::TokenRow> kept, held_out;
  if (recipe.data.validation) {
    data::Rows validation = read(*recipe.data.validation, recipe, vocab_size);
    sets.validation_fingerprint = hex(validation.fingerprint);
    kept = std::move(train.rows);
    held_out = std::move(validation.rows);
  } else {
    const auto count = static_cast<int64_t>(train.rows.size());
    if (recipe.data.validation_rows >= count) {
      throw Error(ErrorKind::usage,
                  "data.validation_rows is " + std::to_string(recipe.data.validation_rows) + "; " + recipe.data.train +
                      " has " + std::to_string(count) + " good rows",
                  "hold out fewer rows: some must be left to train on");
    }
    // An epoch that training never reaches, so that the draw is of its own.
    const auto order =
        data::epoch_order(static_cast<uint64_t>(recipe.seed), std::numeric_limits<uint64_t>::max(), count);
    std::vector<bool> out(static_cast<size_t>(count), false);
    for (int64_t i = 0; i < recipe.data.validation_rows; ++i) {
      out[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
    }
    for (size_t i = 0; i < out.size(); ++i) (out[i] ? held_out : kept).push_back(std::move(train.rows[i]));
  }
  sets.train = std::make_shared<const std::vector<data::TokenRow>>(std::move(kept));
  sets.validation = std::make_shared<const std::vector<data::TokenRow>>(std::move(held_out));
  return sets;
}

}  // namespace pacer::train
