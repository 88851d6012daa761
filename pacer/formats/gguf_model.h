// A GGUF file seen as the Hugging Face model that it was made from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pacer/formats/gguf.h"
#include "pacer/formats/tensor_source.h"

namespace pacer::formats {

// Immutable, usable from several threads.
class GgufModel : public std::enable_shared_from_this<GgufModel> {
 public:
  // Throws Error{format}: an architecture other than llama, qwen2 and qwen3, metadata that is not understood, or a
  // tensor without a place in such a model.
  static std::shared_ptr<const GgufModel> open(const std::filesystem::path& path);

  const GgufFile& file() const { return *file_; }
  const Json& config() const { return config_; }  // config.json
  const Json& generation_config() const { return generation_config_; }

  // Names as in the Hugging Face checkpoint: "model.layers.0.self_attn.q_proj.weight".
  std::vector<std::string> names() const;  // sorted
  bool has(const std::string& name) const { return entries_.contains(name); }
  const GgufTensor& stored(const std::string& name) const;  // the tensor behind it; throws Error{format}
  const std::vector<int64_t>& shape(const std::string& name) const { return stored(name).shape; }

  // Llama files interleave the rows of q and k (gguf_names.h); stored_row is the row of the file that holds row `row`.
  bool interleaved(const std::string& name) const { return entry(name).interleaved; }
  int64_t stored_row(const std::string& name, int64_t row) const;

  // Rows [first_row, first_row + count) of the Hugging Face tensor in f32, the interleaving of q and k undone.
  void rows(const std::string& name, int64_t first_row, int64_t count, std::span<float> out) const;

  // The whole tensor as F32, BF16 or F16 (rounded to nearest even); out: exactly its bytes in that type.
  void read(const std::string& name, DType dtype, std::span<std::byte> out) const;

  // All tensors in one element type, each converted when it is first asked for and kept as long as the source lives, so
  // the memory of the source is that of the tensors used. Keeps this model alive.
  std::shared_ptr<const TensorSource> tensors(DType dtype) const;

 private:
  struct Entry {
    std::string stored_name;
    bool interleaved = false;
  };
  GgufModel() = default;
  const Entry& entry(const std::string& name) const;

  std::shared_ptr<const GgufFile> file_;
  Json config_, generation_config_;
  int64_t head_dim_ = 0;
  std::map<std::string, Entry> entries_;
};

}  // namespace pacer::formats
