#include "pacer/train/text_rows.h"

#include <algorithm>
#include <cmath>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/formats/manifest.h"

namespace pacer::train {

TextRows read_text_rows(const std::filesystem::path& file, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                        int64_t length, double held_out) {
  const std::string content = read_file(file);
  std::vector<int64_t> ids;
  if (tokenizer == nullptr) {
    for (const char byte : content) ids.push_back(static_cast<unsigned char>(byte));
  } else {
    for (const auto id : tokenizer->encode(content).ids) ids.push_back(id);
  }
  TextRows rows;
  rows.fingerprint = formats::fingerprint(content);
  rows.tokens = static_cast<int64_t>(ids.size());
  const int64_t count = std::max<int64_t>(0, (rows.tokens - 1) / length);
  const auto kept_away = static_cast<int64_t>(std::ceil(held_out * static_cast<double>(count)));
  if (count - kept_away < 1 || (held_out > 0 && kept_away < 1)) {
    throw Error(ErrorKind::data,
                file.string() + ": " + std::to_string(rows.tokens) + " tokens are too few for rows of " +
                    std::to_string(length),
                "give a longer text or set language_model.length lower");
  }
  for (int64_t row = 0; row < count; ++row) {
    const auto begin = ids.begin() + row * length;
    (row < count - kept_away ? rows.train : rows.validation).emplace_back(begin, begin + length + 1);
  }
  return rows;
}

}  // namespace pacer::train
