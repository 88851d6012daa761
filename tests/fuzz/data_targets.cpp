// What people write or a run left behind: rows and prompts, recipes, and the JSON files of folders.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/data/prompts.h"
#include "pacer/data/rows.h"
#include "pacer/formats/manifest.h"
#include "pacer/formats/model_folder.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/schema.h"
#include "tests/fuzz/targets.h"

namespace pacer::fuzz {
namespace {

namespace fs = std::filesystem;

// Written without fsync: thousands of inputs a second.
void put(const fs::path& path, std::string_view content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  require(file != nullptr, "a file of the fuzzer's own folder cannot be written");
  std::fwrite(content.data(), 1, content.size(), file);
  std::fclose(file);
}

struct OwnFolder {
  fs::path path;
  OwnFolder() {
    std::string name = (fs::temp_directory_path() / "pacer-fuzz-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "no temporary folder");
    path = name;
  }
  ~OwnFolder() {
    std::error_code ignored;  // the process ends
    fs::remove_all(path, ignored);
  }
};

// A folder with the files that manifests and indexes may name, and one beside it that they may not.
const fs::path& folder() {
  static const OwnFolder temporary;
  static const fs::path inner = [] {
    const fs::path made = temporary.path / "model";
    fs::create_directories(made / "sub");
    put(temporary.path / "secret", "abc");
    put(made / "a", "abc");
    put(made / "sub" / "b", "");
    std::string shard = R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(shard.size());
    put(made / "shard.safetensors", bytes + shard + "xy");
    put(temporary.path / "outside.safetensors", bytes + shard + "xy");
    return made;
  }();
  return inner;
}

void require_inside(const std::string& name) {
  const fs::path normal = fs::path(name).lexically_normal();
  require(!name.empty() && normal.is_relative() && *normal.begin() != "..",
          "a name that leaves its folder was accepted");
}

}  // namespace

void json_lines(std::string_view input) {
  const MemoryFile memory(input);
  for (const data::BadRowPolicy policy :
       {data::BadRowPolicy::drop, data::BadRowPolicy::truncate, data::BadRowPolicy::error}) {
    accepted([&] {
      const data::Prompts read = data::read_prompts(memory.path(), policy);
      for (const data::Prompt& prompt : read.prompts) {
        require(!prompt.turns.empty() && !prompt.id.empty(), "a prompt without a turn or an id");
        prompt.messages(0, {});
      }
    });
  }
  accepted([&] {
    data::RowOptions options;
    options.vocab_size = 1000;
    options.max_length = 64;
    for (const data::TokenRow& row : data::read_rows(memory.path(), options).rows) {
      require(row.ids.size() == row.supervised.size() && row.ids.size() <= 64, "a row of the wrong length");
      for (const int64_t id : row.ids) require(id >= 0 && id < 1000, "an id outside of the vocabulary");
    }
  });
}

void recipe(std::string_view input) {
  accepted([&] {
    const train::ResolvedRecipe read = train::parse_recipe(input, "recipe.yaml");
    // What a run folder keeps must be read again as the same recipe.
    const std::string written = train::resolved_yaml(read);
    const train::ResolvedRecipe again = train::parse_recipe(written, "resolved.yaml");
    require(train::resolved_json(again)["recipe"] == train::resolved_json(read)["recipe"],
            "a recipe that was written and read again says something else");
  });
  accepted([&] { train::parse_recipe("", "recipe.yaml", {std::string(input)}); });
}

void folders(std::string_view input) {
  static constexpr std::array<const char*, 6> kNames = {
      "manifest.json",         "model.safetensors.index.json", "config.json",
      "tokenizer_config.json", "special_tokens_map.json",      "generation_config.json"};
  const size_t line = std::min(input.find('\n'), input.size());
  const std::string_view name = input.substr(0, line), content = input.substr(std::min(line + 1, input.size()));
  put(folder() / "config.json", R"({"model_type": "llama"})");
  for (const char* known : kNames) {
    if (name == known) put(folder() / known, content);
  }
  accepted([&] {
    const formats::Manifest read =
        formats::read_manifest(folder(), "pacer.model", 1, formats::ManifestCheck::checksums);
    for (const formats::ManifestFile& file : read.files) require_inside(file.name);
  });
  accepted([&] {
    const auto tensors = formats::open_safetensors(folder());
    for (const std::string& tensor : tensors->names()) require(tensors->tensor(tensor).bytes.size() == 2, "a shard");
  });
  accepted([&] {
    const formats::ModelFolder model = formats::ModelFolder::open(folder());
    accepted([&] { model.special_tokens(); });
    accepted([&] { model.chat_templates(); });
    model.licence();
  });
  for (const char* known : kNames) fs::remove(folder() / known);
}

}  // namespace pacer::fuzz
