// Text to token ids and back, exactly as tokenizer.json or GGUF metadata describe it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pacer::formats {
class GgufFile;
}

namespace pacer::text {

struct Encoding {
  std::vector<int64_t> ids;
  // [begin, end) in code points of the text given to encode(); tokens may share a code point (byte-level pieces), and
  // text that was stripped or normalised away leaves gaps. Empty unless asked for.
  std::vector<std::pair<int64_t, int64_t>> offsets;
};

struct EncodeOptions {
  bool add_special_tokens = false;  // what the post-processor adds, e.g. BOS; chats are rendered with their own
  bool offsets = false;
};

// One text being decoded while its tokens arrive; must not outlive the tokenizer. The pieces together are what decode()
// gives for all ids at once.
class TokenDecoding {
 public:
  virtual ~TokenDecoding() = default;
  virtual std::string push(int64_t id) = 0;  // text that no later token can change, may be empty
  virtual std::string finish() = 0;          // what is left
};

// Immutable after loading, usable from several threads.
class Tokenizer {
 public:
  // A folder with tokenizer.json, the file itself, or a .gguf file. A component that is not supported is named in an
  // Error{format} with its JSON path; nothing is guessed.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path);
  static std::shared_ptr<const Tokenizer> from_json(std::string_view json, const std::string& place);
  static std::shared_ptr<const Tokenizer> from_gguf(const formats::GgufFile& file);
  virtual ~Tokenizer() = default;

  virtual Encoding encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // Incomplete UTF-8 becomes U+FFFD. Ids out of range throw Error{data}.
  virtual std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = false) const = 0;
  virtual std::unique_ptr<TokenDecoding> start_decoding(bool skip_special_tokens) const = 0;

  virtual int64_t vocab_size() const = 0;  // largest id + 1, added tokens included
  virtual std::optional<int64_t> token_to_id(std::string_view token) const = 0;
  virtual std::string id_to_token(int64_t id) const = 0;  // as stored, e.g. "Ġthe"
  virtual bool is_special(int64_t id) const = 0;
  virtual std::vector<std::pair<std::string, int64_t>> special_tokens() const = 0;
  // tokenizer.json that gives the same tokenizer; the way from GGUF to a Hugging Face folder.
  virtual std::string to_json() const = 0;
};

// Text as it becomes certain while tokens arrive: holds back bytes of an unfinished code point. Owns its tokenizer.
class TokenStream {
 public:
  explicit TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens = true);
  std::string push(int64_t id);  // text that is new, may be empty
  std::string finish();          // what is left
 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TokenDecoding> decoding_;
};

}  // namespace pacer::text
