#include "pacer/text/tokenizer.h"

#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/formats/gguf.h"
#include "pacer/text/tokenizer_json.h"

namespace pacer::text {
namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{512} << 20;

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view json, const std::string& place) {
  return build_tokenizer(read_tokenizer_json(std::string(json), place));
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  if (path.extension() == ".gguf") return from_gguf(*formats::GgufFile::open(path));
  const std::filesystem::path file = std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
  if (!std::filesystem::exists(file)) {
    throw Error(ErrorKind::data, file.string() + ": no such file",
                "a tokenizer is read from a folder with tokenizer.json, from that file, or from a .gguf file");
  }
  return build_tokenizer(read_tokenizer_json(read_file(file, kMaxJsonBytes), file.string()));
}

TokenStream::TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), decoding_(tokenizer_->start_decoding(skip_special_tokens)) {}

std::string TokenStream::push(int64_t id) { return decoding_->push(id); }

std::string TokenStream::finish() { return decoding_->finish(); }

}  // namespace pacer::text
