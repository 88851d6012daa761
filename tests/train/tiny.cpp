#include "tests/train/tiny.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "pacer/base/random.h"
#include "tests/support/files.h"

namespace pacer::train::test {

namespace fs = std::filesystem;

fs::path tiny_target() { return pacer::test::golden("dspark/target"); }

std::vector<data::TokenRow> tiny_rows(int64_t count, uint64_t seed) {
  std::vector<data::TokenRow> rows;
  for (int64_t i = 0; i < count; ++i) {
    const RandomStream random(seed, Purpose::test, 0, static_cast<uint64_t>(i));
    data::TokenRow row;
    row.id = "row-" + std::to_string(i);
    const uint64_t prompt = 4 + random.below(0, 5), answer = 8 + random.below(1, 13);
    for (uint64_t t = 0; t < prompt; ++t) row.ids.push_back(static_cast<int64_t>(random.below(100 + t, 90)));
    for (uint64_t t = 0; t < answer; ++t) row.ids.push_back(static_cast<int64_t>((7 * t + random.below(2, 3)) % 90));
    row.supervised.assign(prompt + answer, 1);
    std::fill_n(row.supervised.begin(), prompt, uint8_t{0});
    rows.push_back(std::move(row));
  }
  return rows;
}

void write_rows(const fs::path& file, const std::vector<data::TokenRow>& rows) {
  std::ofstream out(file);
  for (const data::TokenRow& row : rows) {
    size_t prompt = 0;
    while (prompt < row.ids.size() && row.supervised[prompt] == 0) ++prompt;
    const auto split = row.ids.begin() + static_cast<std::ptrdiff_t>(prompt);
    out << nlohmann::json{{"id", row.id},
                          {"prompt_ids", std::vector<int64_t>(row.ids.begin(), split)},
                          {"output_ids", std::vector<int64_t>(split, row.ids.end())},
                          {"finish_reason", "stop"}}
               .dump()
        << "\n";
  }
}

Recipe tiny_recipe(const fs::path& folder, int64_t rows) {
  write_rows(folder / "rows.jsonl", tiny_rows(rows));
  Recipe recipe;
  recipe.model.target = tiny_target().string();
  recipe.model.dtype = "f32";
  recipe.draft.layers = 1;
  recipe.draft.block_size = 4;
  recipe.draft.taps = {0, 2, 5};
  recipe.draft.markov_rank = 8;
  recipe.draft.mask_token_id = 96;
  recipe.draft.dtype = "f32";
  recipe.data.train = (folder / "rows.jsonl").string();
  recipe.data.max_length = 64;
  recipe.data.sequences = 3;
  recipe.data.anchors = 4;
  recipe.features.memory_mb = 8;
  recipe.optimizer.learning_rate = 5e-3;
  recipe.loss.tile_mb = 1;
  recipe.schedule.steps = 12;
  recipe.logging.every = 4;
  recipe.seed = 3;
  return recipe;
}

}  // namespace pacer::train::test
